"""Server-sent events, byte by byte as they come: the `data` of each event, nothing else."""

from collections.abc import Iterator

MAX_EVENT_BYTES = 1 << 20
"""A chunk of a completion is below 1 kB, one with log probabilities below 100 kB."""


class EventTooLongError(ValueError):
    """The server sends something endless that is no event."""


class EventParser:
    """Lines end in LF, CRLF or CR, wherever the chunks are cut; comments and fields but data go.

    Splits bytes, not text: U+2028 inside a reply is no line end.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._num_bytes = 0
        """Of the data, each line with its end: also lines without content are bounded."""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Data of the events that this chunk completes. Raises EventTooLongError."""
        # A line that only grows is not looked at again and again.
        if self._line and not (self._line[-1:] == b"\r" or b"\n" in chunk or b"\r" in chunk):
            self._line += chunk
            lines = []
        else:
            lines = (bytes(self._line) + chunk).splitlines(keepends=True)
            self._line.clear()
        # A trailing CR may be half of a CRLF: it waits for the next byte.
        if lines and not lines[-1].endswith(b"\n"):
            self._line += lines.pop()
        for line in lines:
            yield from self._take(line.rstrip(b"\r\n"))
        if len(self._line) + self._num_bytes > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event of more than {MAX_EVENT_BYTES} bytes")

    def _take(self, line: bytes) -> Iterator[str]:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._num_bytes += len(self._data[-1]) + 1
        elif self._data:
            event = b"\n".join(self._data)
            self._data.clear()
            self._num_bytes = 0
            yield event.decode()
