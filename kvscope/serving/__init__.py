"""Runs the servers of engine and sidecar: sockets, keys, signals, the orderly end."""
