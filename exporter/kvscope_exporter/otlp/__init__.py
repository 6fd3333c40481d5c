"""Metrics by OTLP: the families of the page as OpenTelemetry's points, sent periodically."""
