"""Several servers in other processes: which they are, how each is attached, and when one ends."""
