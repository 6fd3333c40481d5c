"""Traces by OTLP: one span for each request, made from the same events as the folds' state."""
