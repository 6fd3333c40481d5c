"""Swapping preempted sequences to the host: which blocks, whose, and whether it pays."""
