"""Answers about an engine that do not fit into metrics: structured, as JSON."""
