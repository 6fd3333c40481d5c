"""Servers and a reader without sockets: what one says and the other makes of it."""

from dataclasses import dataclass, field

from kvscope_exporter.sources.kv_events.tracker import ANSWER_NS, Delivery, Tracker

MILLISECOND = 1_000_000


@dataclass
class Process:
    """A server: its messages differ from any other's under the same number."""

    name: str
    buffered: int = 10_000
    payloads: list[bytes] = field(default_factory=list)

    def say(self) -> tuple[int, bytes]:
        seq = len(self.payloads)
        self.payloads.append(f"{self.name} {seq}".encode())
        return seq, self.payloads[-1]

    def held(self, first: int) -> list[tuple[int, bytes]]:
        """The answer to a request."""
        every = list(enumerate(self.payloads))[-self.buffered :]
        return [(seq, payload) for seq, payload in every if seq >= first]


@dataclass
class Reader:
    """A tracker, a clock, and what was delivered."""

    replays: bool = True
    room: int = 1 << 60
    taken: list[Delivery] = field(default_factory=list)
    now_ns: int = 10**12

    def __post_init__(self) -> None:
        self.tracker = Tracker(self._take, replays=self.replays)

    def _take(self, delivery: Delivery) -> bool:
        if len(self.taken) >= self.room:
            return False
        self.taken.append(delivery)
        return True

    def hear(self, *messages: tuple[int, bytes]) -> None:
        for seq, payload in messages:
            self.tracker.on_live(seq, payload, self.now_ns)

    def request(self) -> int | None:
        self.now_ns += MILLISECOND
        return self.tracker.request(self.now_ns, has_room=len(self.taken) < self.room)

    def settle(self, server: Process | None) -> list[int]:
        """Have requests answered, or ignored, until none are left; the numbers asked from."""
        asked = []
        for _ in range(20):
            first = self.request()
            if first is None:
                break
            asked.append(first)
            if server is None:
                self.now_ns += ANSWER_NS + 1
                assert self.tracker.timed_out(self.now_ns)
                continue
            for seq, payload in server.held(first):
                self.tracker.on_answer(seq, payload, self.now_ns)
            self.tracker.on_end(self.now_ns)
        return asked

    def reconnect(self) -> None:
        self.tracker.on_disconnected()
        self.tracker.on_connected()

    @property
    def texts(self) -> list[str]:
        return [delivery.payload.decode() for delivery in self.taken]

    @property
    def breaks(self) -> list[tuple[str, int]]:
        """Messages after a break, and how many are missing there."""
        return [(d.payload.decode(), d.lost) for d in self.taken if d.broken]


def joined(replays: bool = True, said: int = 3) -> tuple[Reader, Process]:
    """A reader that has heard all that a server said."""
    reader, server = Reader(replays), Process("a")
    reader.tracker.on_connected()
    reader.settle(server)
    for _ in range(said):
        reader.hear(server.say())
    assert len(reader.taken) == said
    assert reader.tracker.certain
    return reader, server
