"""Keys as text: their valid form, and files of them."""

from pathlib import Path

from kvscope_exporter.files.foreign import read_small

MAX_KEY_BYTES = 1024
"""Maximum bytes of a key in UTF-8; it fits into a header."""
MAX_KEYS = 256
"""Maximum number in a file: each request is compared with all of them."""
MAX_FILE_BYTES = MAX_KEYS * (MAX_KEY_BYTES + 2)


def check_key(key: str) -> str:
    """The key itself. Raises ValueError, whose message does not show it."""
    if not key:
        raise ValueError("must not be empty: leave it out to serve without one")
    try:
        encoded = key.encode()
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
        raise ValueError("is not UTF-8") from None
    if len(encoded) > MAX_KEY_BYTES:
        raise ValueError(f"is longer than {MAX_KEY_BYTES} bytes")
    if not key.isprintable() or any(char.isspace() for char in key):
        raise ValueError("has a space or a control character")
    return key


def read_keys(file: Path) -> tuple[str, ...]:
    """The keys of a file, one a line; empty lines do not count.

    Raises ValueError, which names the file and the line.
    """
    keys = []
    for number, line in enumerate(_text(file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            keys.append(check_key(line.strip()))
        except ValueError as error:
            raise ValueError(f"{file}:{number}: the key {error}") from None
    if not keys:
        raise ValueError(f"{file}: no key in it; write one a line")
    if len(keys) > MAX_KEYS:
        raise ValueError(f"{file}: over {MAX_KEYS} keys")
    return tuple(keys)


def _text(file: Path) -> str:
    try:
        content = read_small(file, MAX_FILE_BYTES)
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"{file}: larger than {MAX_FILE_BYTES >> 10} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 at byte {error.start}") from None
