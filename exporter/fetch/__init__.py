"""Fetches documents of other servers: within a time, a size, and whatever they answer."""
