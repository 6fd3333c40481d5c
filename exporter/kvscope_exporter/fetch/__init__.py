"""Fetches documents from other servers, within limits of time and size, whatever they answer."""
