"""Decode attention on a CPU, in place: a C kernel that the machine's compiler makes at start-up."""
