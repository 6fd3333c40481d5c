"""Swapping preempted sequences to the host: their blocks, their owners, and the decision."""
