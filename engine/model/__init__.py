"""Checkpoints, paged attention, KV tensors, sampling: all of the engine that needs torch."""
