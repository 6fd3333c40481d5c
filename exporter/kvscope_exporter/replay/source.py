"""One recorded stream, as a source; it gives what was recorded, up to a position."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from kvscope_events.events import Batch
from kvscope_exporter.recorder.records import SessionStart, SourceRecord, StreamGap
from kvscope_exporter.sources.attachments import SourceKind

Entry = Batch | StreamGap | SessionStart | SourceRecord


class PlacedEntry(NamedTuple):
    """An entry at its place in the stream."""

    position: int
    entry: Entry


class ReplayedSource:
    """Entries are given to it in order; `allow` says up to which of them may be taken."""

    superseded = False

    def __init__(self, kind: SourceKind, endpoint: str, position: int) -> None:
        """position: entries of the stream before those that are given."""
        self.kind: SourceKind = kind
        self.endpoint = endpoint
        self.session = ""
        self.up = True
        self.state_known = False
        self.last_message_ns: int | None = None
        self.batches_dropped = 0
        self.gaps = 0
        self.decode_errors: Mapping[str, int] = {}
        self.position = self._allowed = position
        """Place of the next entry that is given."""
        self._entries: deque[PlacedEntry] = deque()
        self._lost = 0

    def give(self, entry: Entry) -> None:
        self._entries.append(PlacedEntry(self.position, entry))
        self.position += 1

    def allow(self, position: int) -> None:
        """Let the entries before this position be taken."""
        self._allowed = position

    @property
    def is_renewed(self) -> bool:
        """Whether the next entry is a new producer."""
        return self._is_allowed and isinstance(self._entries[0].entry, SessionStart)

    @property
    def is_due(self) -> bool:
        """Whether an entry may be taken."""
        return self._is_allowed and not self.is_renewed

    def renew(self) -> None:
        """Pass the entry that is a new producer."""
        self._entries.popleft()

    def take(self) -> tuple[Batch, int] | None:
        while self.is_due:
            entry = self._entries.popleft().entry
            match entry:
                case Batch():
                    lost, self._lost = self._lost, 0
                    return entry, lost
                case StreamGap():
                    self._lost += 1
                case SourceRecord():
                    self._hear(entry)
        return None

    def request_snapshot(self) -> None:
        """Do nothing: a file cannot be asked."""

    def wait(self, timeout: float) -> bool:
        """False: nothing arrives by itself."""
        return False

    def wake(self) -> None:
        """Do nothing, since no thread waits."""

    def close(self) -> None:
        self._entries.clear()

    @property
    def _is_allowed(self) -> bool:
        return bool(self._entries) and self._entries[0].position < self._allowed

    def _hear(self, heard: SourceRecord) -> None:
        self.up = heard.up
        self.state_known = heard.state_known
        self.last_message_ns = heard.last_message_ns
        self.batches_dropped = heard.batches_dropped
        self.gaps = heard.gaps
        self.decode_errors = heard.decode_errors
