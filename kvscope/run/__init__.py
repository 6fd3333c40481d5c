"""`kvscope run`: a foreign command with the observer on its path, and its page beside it."""
