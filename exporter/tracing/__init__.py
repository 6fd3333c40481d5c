"""Traces by OTLP: one span for each request, made from the events that the folds read as well."""
