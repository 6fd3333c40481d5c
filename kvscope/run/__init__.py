"""`kvscope run`: runs a foreign command with the observer on its path, and serves its page."""
