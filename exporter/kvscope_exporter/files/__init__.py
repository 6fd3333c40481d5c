"""Careful access to files that others may change, and to files that only we may read."""
