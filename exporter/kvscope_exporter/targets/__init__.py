"""One watched server: its engines, its state, its page and its answers."""
