"""Turns engines' events into metrics; of an engine it knows only the contract."""
