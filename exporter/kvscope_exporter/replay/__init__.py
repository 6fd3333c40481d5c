"""A recording as a server: the exporter's own code, fed by a file, at a moment of the past."""
