"""Turns an engine's events into metrics; needs of the engine only its contract."""
