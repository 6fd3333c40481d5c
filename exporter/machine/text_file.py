"""Reads the small text files of /proc and /sys, any of which may be missing."""

from pathlib import Path


def read_text(path: Path) -> str | None:
    """The content, or None where the file is missing or may not be read."""
    try:
        return path.read_text()
    except OSError:
        return None
