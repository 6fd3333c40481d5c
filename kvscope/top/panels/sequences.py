"""The sequences of an engine: the state of each, its blocks, and its last seconds as a timeline."""

from rich.text import Text

from exporter import words
from exporter.live.documents import SequenceRow
from kvscope.top.reading import SEQUENCES, SequencesAnswer, Unknown
from kvscope.top.situation import Panel, Situation, unknown_lines
from kvscope.top.table import Column, Table

_RANK = ("preempted", "swapped", "decode", "prefill", "queued", "finished", "aborted")
"""States in the order of the rows."""
_ENDED = ("finished", "aborted")
_STYLES = {
    **{"queued": "color(245)", "prefill": "color(39)", "decode": "color(208)"},
    **{"preempted": "color(203)", "swapped": "color(203)", "finished": "dim", "aborted": "dim"},
}
_SIGNS = {"queued": "·", "prefill": "▒", "decode": "█", "preempted": "!", "swapped": "!"}
_CELLS = 30
_CELL_MS = 500


def _since_ms(row: SequenceRow) -> int:
    """The beginning of its present state."""
    return row.changes[-1][1] if row.changes else 0


def _tenant(row: SequenceRow) -> str:
    if row.tenant:
        return row.tenant
    return words.UNKNOWN if row.prompt_tokens is None else "(no user)"


def timeline(row: SequenceRow, now_ms: int) -> str:
    """The state in each half second before now, the latest at the right."""
    cells = []
    for place in range(_CELLS):
        moment = now_ms - (_CELLS - 1 - place) * _CELL_MS
        state = next((state for state, began in reversed(row.changes) if began <= moment), "")
        cells.append(_SIGNS.get(state, " "))
    return "".join(cells)


def _columns(answer: SequencesAnswer) -> tuple[Column, ...]:
    now_ms, block_size = answer.now_ms, answer.block_size
    return (
        Column(title="sequence", cell=lambda row: str(row.id), order=lambda row: row.id),
        Column(
            title="state",
            cell=lambda row: row.state,
            right=False,
            style=lambda row: _STYLES[row.state],
        ),
        Column(
            title="for",
            cell=lambda row: words.seconds((now_ms - _since_ms(row)) / 1000),
            order=lambda row: now_ms - _since_ms(row),
        ),
        Column(
            title="blocks", cell=lambda row: words.short(row.blocks), order=lambda row: row.blocks
        ),
        Column(
            title="prompt",
            cell=lambda row: words.short(row.prompt_tokens),
            order=lambda row: row.prompt_tokens,
        ),
        Column(
            title="found",
            cell=lambda row: words.short(row.hit_blocks * block_size),
            order=lambda row: row.hit_blocks,
            left_out=3,
        ),
        Column(
            title="output",
            cell=lambda row: words.short(row.output_tokens),
            order=lambda row: row.output_tokens,
        ),
        Column(
            title="preempted",
            cell=lambda row: words.count(row.preemptions),
            order=lambda row: row.preemptions,
            left_out=1,
            style=lambda row: "color(203)" if row.preemptions else "",
        ),
        Column(
            title="tenant",
            cell=_tenant,
            right=False,
            left_out=2,
        ),
        Column(
            title="at most",
            cell=lambda row: words.short(row.max_tokens),
            order=lambda row: row.max_tokens,
            left_out=5,
        ),
        Column(
            title=f"last {_CELLS * _CELL_MS // 1000} s",
            cell=lambda row: timeline(row, now_ms),
            right=False,
            left_out=4,
        ),
    )


def _answer(situation: Situation) -> SequencesAnswer | Unknown:
    found = situation.here.engine.answers.get(SEQUENCES, Unknown("it was not asked"))
    assert isinstance(found, SequencesAnswer | Unknown)
    return found


def _note(situation: Situation) -> str:
    answer = _answer(situation)
    if isinstance(answer, Unknown):
        return ""
    states: list[str] = [row.state for row in answer.sequences]
    counts = {state: states.count(state) for state in _RANK if state not in _ENDED}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none runs"


def _body(situation: Situation, width: int) -> Table | list[Text]:
    answer = _answer(situation)
    if isinstance(answer, Unknown):
        return unknown_lines(answer, width)
    rows = sorted(
        answer.sequences, key=lambda row: (_RANK.index(row.state), -_since_ms(row), row.id)
    )
    return Table(columns=_columns(answer), rows=rows, empty="No sequence has been seen yet.")


SEQUENCE_TABLE = Panel(
    key="sequences",
    title="Sequences",
    help="Each sequence: its state and for how long, blocks, tokens of its prompt, those of them "
    "found in the cache, tokens generated. The timeline has · queued, ▒ prefill, █ decode, "
    "! preempted. Of one that ran before it was looked at, the prompt is unknown.",
    least=4,
    most=60,
    note=_note,
    body=_body,
)
