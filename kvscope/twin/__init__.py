"""Recorded calls on a scheduler with other options, without a model."""
