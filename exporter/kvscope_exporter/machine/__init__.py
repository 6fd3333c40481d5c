"""Readings of the machine besides the engines' events: its GPUs and its memory."""
