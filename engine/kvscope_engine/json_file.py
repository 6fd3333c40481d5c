"""Untrusted JSON files: read up to a size and a depth, or refused in one line."""

import json
from pathlib import Path

MAX_DEPTH = 64
"""Levels of nesting. Libraries walk a parsed file by recursion; real ones have below ten."""


class JsonFileError(ValueError):
    """Describes what is wrong with the file, to follow its name: `is not a JSON object`."""


def read_json_object(path: Path, max_bytes: int) -> dict[str, object]:
    """The object in the file. Raises OSError, or JsonFileError; reads no more than `max_bytes`."""
    with path.open("rb") as file:
        text = file.read(max_bytes + 1)
    if len(text) > max_bytes:
        raise JsonFileError(f"is larger than {max_bytes:,} bytes")
    return parse_json_object(text)


def parse_json_object(text: bytes) -> dict[str, object]:
    """The object in `text`, which is UTF-8. Raises JsonFileError."""
    try:
        content = json.loads(text.decode("utf-8"))
    except RecursionError as error:
        raise JsonFileError(_TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise JsonFileError(f"is not valid JSON (not UTF-8, at byte {error.start})") from error
    except ValueError as error:
        raise JsonFileError(f"is not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise JsonFileError("is not a JSON object")
    _check_depth(content)
    return content


_TOO_DEEP = f"nests deeper than {MAX_DEPTH} levels"


def _check_depth(content: object) -> None:
    level: list[object] = [content]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise JsonFileError(_TOO_DEEP)


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return [inner for inner in value.values() if isinstance(inner, dict | list)]
    if isinstance(value, list):
        return [inner for inner in value if isinstance(inner, dict | list)]
    return []
