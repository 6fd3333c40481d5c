"""The configuration error: what is wrong, and where; and the file read as text, or refused."""

from pathlib import Path

from kvscope_events.printable import printable
from kvscope_exporter.files.foreign import read_small


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


MAX_CHARACTERS = 600


class ConfigurationError(Exception):
    """One line: place, problem, remedy: `kvscope.yaml:7: servers[0].url: …; write …`."""

    def __init__(self, path: str, problem: str, remedy: str, line: int | None = None) -> None:
        """path: the place in the document, such as `servers[2].url`; empty: all of it."""
        self.path = path
        self.problem = problem
        self.remedy = remedy
        self.line = line
        """The first line is 1; None: unknown."""
        self.file = ""
        """Set by the reader of the file."""
        super().__init__(path, problem, remedy, line)

    def __str__(self) -> str:
        file = f"{self.file}:{self.line}" if self.file and self.line else self.file
        text = ": ".join(part for part in (file, self.path, self.problem) if part)
        text = f"{text}; {self.remedy}" if self.remedy else text
        # The message may quote keys and values of the document: keep it on one line, whatever they
        # are.
        return printable(text[:MAX_CHARACTERS], keep="")
