"""A recording at some moments of it, as the live page asks for them; their bytes are bounded.

Each moment has what the page asks a replay for: the snapshot of each engine, the sequences that
have not ended, the answers, and the memory of the GPUs.
"""

import base64
import zlib
from collections.abc import Generator
from typing import Any, NamedTuple

import msgspec

from kvscope.replay.player import Status, status_of
from kvscope_exporter import build_version
from kvscope_exporter.answers.course import COURSE, CourseAnswer
from kvscope_exporter.answers.diagnosis.question import WHY
from kvscope_exporter.answers.preemptions import PREEMPTIONS
from kvscope_exporter.answers.prefixes import PREFIXES
from kvscope_exporter.answers.question import Question
from kvscope_exporter.answers.whatif import WHATIF
from kvscope_exporter.live.documents import MAGIC, Head, SequenceDocument
from kvscope_exporter.live.following import LiveFold
from kvscope_exporter.live.hub import EngineDocument, Engines, Hub, among
from kvscope_exporter.live.sequences import ENDS
from kvscope_exporter.live.view import UnknownHereError, View
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Index, Playback
from kvscope_exporter.targets.reply import Reply
from kvscope_exporter.web.live import Overview, ServerRow

NUM_MOMENTS = 128
"""At even distances, a tenth of a second apart at least. The last marks have one each besides."""
MOST_BYTES = 8 << 20
"""All moments together, compressed and as text. Of a pool too large for that, fewer are kept."""
_LEAST_NS = 10**8
_MOST_MARKS = 20
_ANSWERS: tuple[Question[Any], ...] = (WHY, PREFIXES, WHATIF, PREEMPTIONS, COURSE)
_OF_MEMORY = b"kvscope_gpu_memory_component_bytes{"
_OF_A_MARK, _OF_AN_END, _ASKED = 4, 7, 8
"""Weights: where there is no room for all, those with the least go first."""


class TooLargeError(Exception):
    """Not even the moment that is asked for has room."""


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page knows of a recording beside the moments themselves."""

    status: Status
    overview: Overview
    moments: list[float]
    """Unix times in seconds."""
    figures: list[msgspec.Raw]
    """By moment, for each engine: sums and levels, from which the strips are drawn."""


class _Moment(NamedTuple):
    text: bytes
    """Compressed, in base64."""
    figures: msgspec.Raw

    @property
    def size(self) -> int:
        return len(self.text) + len(bytes(self.figures))


class _Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine at a moment; its snapshot stands in the bytes behind."""

    begin: int
    end: int
    sequences: dict[int, SequenceDocument | None]


def gather(
    file: RecordingFile, index: Index, asked_ns: int
) -> Generator[float, None, tuple[Inside, list[bytes]]]:
    """Play the recording; yields the share that was played. Returns the moments' texts as well.

    Raises TooLargeError.
    """
    playback = Playback(file, index, listeners=lambda: [LiveFold(is_shared=True)])
    engines: dict[str, EngineDocument] = {}
    weights = _weights(file, index, asked_ns)
    kept: dict[int, _Moment] = {}
    least = 0
    for number, at_ns in enumerate(weights):
        if weights[at_ns] >= least:
            playback.to(at_ns)
            kept[at_ns] = _moment(playback, engines)
        while sum(moment.size for moment in kept.values()) > MOST_BYTES:
            if least == _ASKED:
                raise TooLargeError(f"one moment of it takes more than {MOST_BYTES >> 20} MiB")
            least += 1
            kept = {at: moment for at, moment in kept.items() if weights[at] >= least}
        yield (number + 1) / len(weights)
    playback.close()
    server = file.opened.server
    shown = Engines(engines=list(engines.values()), note="" if engines else "no engine was heard")
    row = ServerRow(name="", title=server, state="recorded", engines=shown)
    inside = Inside(
        status=status_of(file, index._replace(marks=index.marks[-_MOST_MARKS:]), asked_ns),
        overview=Overview(version=build_version(), is_replay=True, acts=[], servers=[row]),
        moments=[at_ns / 1e9 for at_ns in kept],
        figures=[moment.figures for moment in kept.values()],
    )
    return inside, [moment.text for moment in kept.values()]


def _weights(file: RecordingFile, index: Index, asked_ns: int) -> dict[int, int]:
    """The moments in their order, with how much each matters."""
    begins_ns, ends_ns = file.begins_ns, file.ends_ns
    length_ns = max(0, ends_ns - begins_ns)
    number = max(1, min(NUM_MOMENTS, length_ns // _LEAST_NS))
    weights = {
        begins_ns + length_ns * place // number: min(_OF_AN_END, _times_even(place))
        for place in range(number)
    }
    for mark in index.marks[-_MOST_MARKS:]:
        if begins_ns <= mark.wall_ns <= ends_ns:
            weights[mark.wall_ns] = max(_OF_A_MARK, weights.get(mark.wall_ns, 0))
    weights[ends_ns] = _OF_AN_END
    weights[asked_ns] = _ASKED
    return dict(sorted(weights.items()))


def _times_even(place: int) -> int:
    """Times that a number can be halved."""
    return (place & -place).bit_length() - 1 if place else _OF_AN_END


def _moment(playback: Playback, engines: dict[str, EngineDocument]) -> _Moment:
    """engines: gets those that are heard now."""
    shown: dict[str, _Engine] = {}
    snapshots = b""
    figures: dict[str, Any] = {}
    hub = Hub(lambda _name: playback.exporter)
    with playback.exporter.present() as targets:
        for document in hub.engines("").engines:
            engines[document.key] = document
            view = View(among(targets, document.key))
            try:
                _, snapshot = view.snapshot()
            except UnknownHereError:
                continue
            head = _head_of(snapshot)
            if head.figures is not None:
                sums = msgspec.structs.asdict(head.figures)
                figures[document.key] = {"ms": head.now_ms, **sums, "pool": head.pool}
            running = [row.id for row in head.sequences if row.state not in ENDS]
            begin = len(snapshots)
            snapshots += snapshot
            shown[document.key] = _Engine(
                begin=begin,
                end=len(snapshots),
                sequences={number: view.sequence(number) for number in running},
            )
    page, _ = playback.exporter.render()
    text = msgspec.json.encode(
        {
            "answers": {each.name: _answer(playback, each) for each in _ANSWERS},
            "metrics": "\n".join(
                line.decode() for line in page.splitlines() if line.startswith(_OF_MEMORY)
            ),
            "engines": shown,
        }
    )
    whole = len(text).to_bytes(4, "little") + text + snapshots
    encoded = msgspec.Raw(msgspec.json.encode(figures))
    return _Moment(base64.b64encode(zlib.compress(whole, 9)), encoded)


def _head_of(snapshot: bytes) -> Head:
    begin = len(MAGIC) + 4
    length = int.from_bytes(snapshot[len(MAGIC) : begin], "little")
    return msgspec.json.decode(snapshot[begin : begin + length], type=Head)


def _answer(playback: Playback, question: Question[Any]) -> Reply:
    """Without the slices of the course: the page has figures of each moment."""
    reply = playback.exporter.answer(question)
    engines = [
        msgspec.structs.replace(
            engine, answer=msgspec.structs.replace(engine.answer, slices=[], gpus=[])
        )
        if isinstance(engine.answer, CourseAnswer)
        else engine
        for engine in reply.engines
    ]
    return msgspec.structs.replace(reply, engines=engines)
