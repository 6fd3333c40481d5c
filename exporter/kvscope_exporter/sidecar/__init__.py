"""Watching several servers in other processes: how each is attached, and when one ends."""
