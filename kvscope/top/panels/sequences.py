"""The sequences of an engine: the state of each, its blocks, and its last seconds as a timeline."""

from kvscope.top.reading import SEQUENCES, SequencesAnswer
from kvscope.top.situation import Panel, Situation
from kvscope.top.table import Column, Table
from kvscope_exporter import words
from kvscope_exporter.live.documents import SequenceRow

_STATES = {
    # State to style and sign, in the order of the rows.
    "preempted": ("color(203)", "!"),
    "swapped": ("color(203)", "!"),
    "decode": ("color(208)", "█"),
    "prefill": ("color(39)", "▒"),
    "queued": ("color(245)", "·"),
    "finished": ("dim", " "),
    "aborted": ("dim", " "),
}
_RANK = list(_STATES)
_CELLS = 30
_CELL_MS = 500


def _since_ms(row: SequenceRow) -> int:
    """The beginning of its present state."""
    return row.changes[-1][1] if row.changes else 0


def _tenant(row: SequenceRow) -> str:
    return row.tenant or (words.UNKNOWN if row.prompt_tokens is None else "(no user)")


def timeline(row: SequenceRow, now_ms: int) -> str:
    """The state in each half second before now, the latest at the right."""
    cells = []
    for place in range(_CELLS):
        moment = now_ms - (_CELLS - 1 - place) * _CELL_MS
        state = next((state for state, began in reversed(row.changes) if began <= moment), "")
        cells.append(_STATES[state][1] if state else " ")
    return "".join(cells)


def _columns(answer: SequencesAnswer) -> tuple[Column, ...]:
    now_ms, block_size = answer.now_ms, answer.block_size
    return (
        Column("sequence", lambda row: row.id),
        Column("state", lambda row: row.state, left=True, style=lambda state: _STATES[state][0]),
        Column("for", lambda row: (now_ms - _since_ms(row)) / 1000, words.seconds),
        Column("blocks", lambda row: row.blocks, words.short),
        Column("prompt", lambda row: row.prompt_tokens, words.short),
        Column("found", lambda row: row.hit_blocks * block_size, words.short, left_out=3),
        Column("output", lambda row: row.output_tokens, words.short),
        Column(
            *("preempted", lambda row: row.preemptions, words.count),
            left_out=1,
            style=lambda figure: "color(203)" if figure else "",
        ),
        Column("tenant", _tenant, left=True, left_out=2),
        Column("at most", lambda row: row.max_tokens, words.short, left_out=5),
        Column(
            f"last {_CELLS * _CELL_MS // 1000} s",
            lambda row: timeline(row, now_ms),
            left=True,
            left_out=4,
        ),
    )


def _body(situation: Situation, answer: SequencesAnswer, width: int) -> tuple[str, Table]:
    states: list[str] = [row.state for row in answer.sequences]
    counts = {state: states.count(state) for state in _RANK[:-2]}
    note = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    rows = sorted(
        answer.sequences, key=lambda row: (_RANK.index(row.state), -_since_ms(row), row.id)
    )
    return note or "none runs", Table(_columns(answer), rows, "No sequence has been seen yet.")


SEQUENCE_TABLE = Panel(
    "Sequences",
    "Each sequence: its state and for how long, blocks, tokens of its prompt, those of them found "
    "in the cache, tokens generated. The timeline has · queued, ▒ prefill, █ decode, ! preempted. "
    "Of one that ran before it was looked at, the prompt is unknown.",
    *(_body, SEQUENCES),
)
