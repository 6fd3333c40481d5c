"""The flight recorder: what a page needs, kept for a while, saved when something happens."""
