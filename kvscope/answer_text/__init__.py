"""Answers as text for a terminal: what a command prints is what `kvscope top` shows."""
