"""Paged attention: transformers' interface to it, the backend protocol, one backend a file."""
