"""The periods of an engine's last half hour: what happened belongs to the time when it happened."""

from kvscope_events.events import Batch, EngineEvent, PoolCreated, RequestRejected
from kvscope_exporter.answers.diagnosis.course import SLICE_NS, Course
from kvscope_exporter.clock import Clock
from kvscope_exporter.state.timeline import PERIOD_NS
from kvscope_exporter.targets.target import Target
from tests.exporter.page import HELLO, step
from tests.exporter.test_pipeline import Sessions

SECOND = 10**9
AHEAD_NS = 7_000 * SECOND
"""Our monotonic clock less the producer's."""


class Stream:
    """A target, a producer, and the time."""

    def __init__(self) -> None:
        self.now_ns = AHEAD_NS
        self._source = Sessions()
        clock = Clock(monotonic_ns=lambda: self.now_ns, wall_ns=lambda: self.now_ns)
        self.target = Target(self._source, compat=(), clock=clock)  # type: ignore[arg-type]
        self._seq = 0

    def send(self, *events: EngineEvent, late_seconds: float = 0) -> None:
        """They arrive now, and were sent so much earlier."""
        self._seq += 1
        sent_ns = self.now_ns - AHEAD_NS - int(late_seconds * SECOND)
        self._source.queue.append(("a", Batch(self._seq, sent_ns, [*events], 0, self.now_ns)))

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_ns += SECOND
            self.send(step(decode_tokens=1))
            self.target.pipeline.drain()

    def refused(self) -> list[float]:
        """By slice of ten seconds, the newest last."""
        with self.target.pipeline.settled():
            present = self.target.timeline.until(self.now_ns, None)
        return [each.sums.rejected for each in Course(present, self.now_ns).slices]


def begun() -> Stream:
    stream = Stream()
    stream.send(HELLO, PoolCreated(8, 4, 64))
    stream.live(60)
    return stream


def test_what_came_just_before_a_silence_stays_at_its_time() -> None:
    stream = begun()
    stream.send(RequestRejected("queue_full"))
    stream.target.pipeline.drain()
    stream.now_ns += 10 * 60 * SECOND
    counts = stream.refused()
    assert sum(counts) == 1
    assert not any(counts[-59:])


def test_a_backlog_that_is_read_at_the_start_is_not_of_the_present() -> None:
    """It takes longer to read than a period, and only a live batch shows how old it was."""
    stream = Stream()
    stream.send(HELLO, PoolCreated(8, 4, 64), late_seconds=1500)
    for number in range(20):
        stream.now_ns += PERIOD_NS // 4
        stream.send(RequestRejected("queue_full"), late_seconds=1499 - number)
        stream.target.pipeline.drain()
    stream.live(60)
    assert not any(stream.refused())


def test_batches_that_waited_to_be_read_belong_to_the_time_at_which_they_were_sent() -> None:
    stream = begun()
    stream.now_ns += 120 * SECOND
    for number in range(4):
        stream.send(RequestRejected("queue_full"), late_seconds=100 - number)
    stream.live(10)
    counts = stream.refused()
    slices = len(counts) - 1 - int((100 + 10) * SECOND // SLICE_NS)
    assert sum(counts) == 4
    assert sum(counts[slices - 1 : slices + 2]) == 4
