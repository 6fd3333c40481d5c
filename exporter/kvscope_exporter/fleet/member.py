"""Asks one sidecar every second for what is new, on a thread of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kvscope_exporter.answers.projection import positions_text
from kvscope_exporter.catalogue.fleet import SIDECAR_ERROR_KINDS
from kvscope_exporter.clock import BackgroundLoop, Clock
from kvscope_exporter.faults import Faults
from kvscope_exporter.fetch.error import JSON_ERRORS, FetchError
from kvscope_exporter.fetch.fetch import Fetcher
from kvscope_exporter.files.foreign import read_small
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.paths import ANSWERS
from kvscope_exporter.scrape.tls import Tls
from kvscope_exporter.state.fleet.projected import MAX_NAMES, NAME_BYTES, VERSION, EventsDocument

ASK_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0
"""Total for one answer."""
STALE_SECONDS = 10.0
"""Without an answer for so long, what its replicas hold is not known."""
MAX_BYTES = MAX_NAMES * NAME_BYTES * 2
_MAX_KEY_BYTES = 16 << 10
_DECODER = msgspec.msgpack.Decoder(EventsDocument)

Read = Callable[[str], bytes]
"""A sidecar's answer to a reader at these positions. Raises FetchError."""


class BearerHeader(Mapping[str, str]):
    """The header with a token, which is read from its file for every request."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __getitem__(self, name: str) -> str:
        if name != "Authorization":
            raise KeyError(name)
        try:
            content = read_small(self._file, _MAX_KEY_BYTES)
        except OSError as error:
            reason = f"its key cannot be read: {self._file}: {error.strerror or error}"
            raise FetchError("headers", reason) from None
        lines = [line.strip() for line in content.decode(errors="replace").splitlines()]
        token = next((line for line in lines if line and not line.startswith("#")), "")
        if not token.isascii() or not token.isprintable() or not token:
            raise FetchError("headers", f"its key file has no token: {self._file}")
        return f"Bearer {token}"

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(("Authorization",))

    def __len__(self) -> int:
        return 1


def reading(url: str, tls: Tls, headers: Mapping[str, str]) -> Read:
    """Reads over HTTP. Raises OSError for a file of `tls`."""
    fetcher = Fetcher(
        tls.client(url, TIMEOUT_SECONDS),
        url.rstrip("/") + ANSWERS.path + "projection",
        headers=headers,
        max_bytes=MAX_BYTES,
        server_name=tls.server_name,
    )

    def read(positions: str) -> bytes:
        return fetcher.fetch(TIMEOUT_SECONDS, f"?after={positions}").body

    return read


class Member:
    """One sidecar. At most one answer waits to be folded; until then nothing more is asked."""

    def __init__(self, name: str, read: Read, fleet: Fleet, clock: Clock) -> None:
        self.name = name
        self._read = read
        self._fleet = fleet
        self._clock = clock
        self.answered_ns: int | None = None
        """The last answer whose replicas are still followed, on this process's monotonic clock."""
        self._faults = Faults(f"sidecar {name}", SIDECAR_ERROR_KINDS, clock.monotonic_ns)
        self._document: EventsDocument | None = None
        self._loop = BackgroundLoop("kvscope-member", ASK_SECONDS, self._ask_again)

    @property
    def errors(self) -> Mapping[str, int]:
        """By kind, all of `SIDECAR_ERROR_KINDS`."""
        return self._faults.counts

    @property
    def is_up(self) -> bool:
        """Whether it has answered lately."""
        age_ns = self._clock.monotonic_ns() - (self.answered_ns or 0)
        return self.answered_ns is not None and age_ns < STALE_SECONDS * 1e9

    def start(self) -> None:
        """Begin to ask; called once."""
        self._loop.start()

    def end(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._loop.end()

    @property
    def answer(self) -> EventsDocument | None:
        """The answer that waits."""
        return self._document

    def folded(self) -> None:
        """The answer is folded; only now are the positions those of the next question."""
        self._document = None

    def ask(self) -> None:
        """Ask once; never raises."""
        try:
            document = self._answer()
        except FetchError as error:
            self._faults.count(error.kind, str(error))
        except JSON_ERRORS as error:
            self._faults.count("malformed", f"its answer is not one of a sidecar: {error}")
        else:
            self._document = document
            self.answered_ns = self._clock.monotonic_ns()
        if self.answered_ns is not None and not self.is_up:
            self.answered_ns = None
            self._fleet.forget(self.name)

    def _answer(self) -> EventsDocument:
        document = _DECODER.decode(self._read(positions_text(self._fleet.positions(self.name))))
        if document.version != VERSION:
            problem = f"it projects in version {document.version}, and this is {VERSION}"
            raise msgspec.ValidationError(problem)
        return document

    def _ask_again(self) -> None:
        if self._document is None:
            self.ask()
