"""A paged-KV inference engine that reports every block-pool event. Imports nothing by itself."""
