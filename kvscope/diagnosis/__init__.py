"""Findings on what works on this machine and what does not, and why, without any output."""
