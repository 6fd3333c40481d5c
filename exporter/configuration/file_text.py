"""Reads the text of a configuration file, up to a size that a parser can stand."""

from pathlib import Path

from exporter.configuration.error import ConfigurationError
from exporter.foreign_file import read_small


def read_text(file: Path, max_bytes: int, remedy: str = "") -> str:
    """Raises ConfigurationError. remedy: what to do about a file that is larger."""
    try:
        content = read_small(file, max_bytes)
    except OSError as error:
        raise ConfigurationError("", f"cannot be read: {error.strerror}", "") from None
    if len(content) > max_bytes:
        raise ConfigurationError("", f"larger than {max_bytes >> 10} KiB", remedy)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start}"
        raise ConfigurationError("", problem, "save it as UTF-8") from None
