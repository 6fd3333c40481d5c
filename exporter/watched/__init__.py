"""One watched server: its engines, the state that it is in, its page and its answers."""
