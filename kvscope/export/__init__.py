"""A recording as files for other tools: one module for each format."""
