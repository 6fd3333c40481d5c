"""Calculates what fits on a GPU from a checkpoint's config.json; loads nothing."""
