"""Runs servers: of the engine, of a sidecar, of both; sockets, keys, signals, the orderly end."""
