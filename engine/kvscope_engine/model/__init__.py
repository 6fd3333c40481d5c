"""Checkpoints, paged attention, KV tensors, sampling: the parts of the engine that need torch."""
