"""The curve of hits over the size of the cache, from a file: a trace or a recorded stream."""
