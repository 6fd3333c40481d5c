"""Observers: code that runs inside a foreign server and emits its events in the contract."""
