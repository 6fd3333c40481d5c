"""The documents of the live page: frames, heads of snapshots, a sequence, a block."""

import binascii
import struct

import msgspec

from kvscope_exporter.live.following import LiveFold, StepNote
from kvscope_exporter.live.sequences import Sequence, State

MAGIC = b"KVSLIVE1"
_ENCODER = msgspec.json.Encoder()
_U8 = frozenset({"cell", "group"})


class SequenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence; null: it began before it was followed."""

    id: int
    request: int | None
    state: State
    prompt_tokens: int | None
    max_tokens: int | None
    output_tokens: int
    """Since it was followed; of one that has ended, all of them."""
    hit_blocks: int
    """Found by its last lookup."""
    blocks: int | None
    """None: the engine numbers none."""
    preemptions: int
    tenant: str
    changes: list[tuple[State, int]]
    """Each state and when it began: milliseconds of the producer's clock."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Sums since the engine's session began, and levels."""

    waiting: int
    running: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    preemptions: int
    recomputed_tokens: int
    queried_blocks: int
    hit_blocks: int
    missed_evicted_blocks: int
    evictions: int
    """Blocks."""
    regret_tokens: int


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The pool; `map` says what can be shown of it, one by one."""

    map: str
    """blocks; names: of the cached content, where blocks have no numbers; counted: blocks have
    neither; unknown: until the next snapshot."""
    names: int | None = None
    """Cells that hold one, of a map of names."""
    num_blocks: int = 0
    """0: the stream knows no pool."""
    reserved: int = 0
    block_size: int = 0
    bytes_per_block: int = 0
    active: int | None = None
    cached: int | None = None
    free: int | None = None
    imbalance: int | None = None


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that changed since the frame before: present values, never differences."""

    frame: int
    epoch: int
    up: bool
    now_ms: int
    """The producer's clock."""
    wall_ms: int
    """The producer's wall clock at that moment; 0: not known."""
    pool: Pool
    figures: Figures | None
    """None: of a stream without steps."""
    columns: dict[str, str] = {}
    """The changed blocks, base64; `id` names them."""
    evicted: str = ""
    """Those that lost their content: u32 in base64."""
    sequences: list[SequenceRow] = []
    grown: list[tuple[int, int, int | None]] = []
    """Number, output tokens and blocks of sequences of which nothing else changed."""
    gone: list[int] = []
    """Sequences that are no longer kept."""
    steps: list[StepNote] = []


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a snapshot; `columns` are places behind it."""

    frame: int
    epoch: int
    up: bool
    now_ms: int
    wall_ms: int
    since_ms: int
    """When following began, on the producer's clock."""
    model_name: str
    engine: str
    server: str
    server_version: str
    eviction_policy: str | None
    groups: list[str]
    """Kinds of the groups; empty: one group."""
    pool: Pool
    figures: Figures | None
    sequences: list[SequenceRow]
    steps: list[StepNote]
    columns: dict[str, tuple[int, int, str]]
    """Offset behind the head, bytes, and type: u8 or u32, little-endian."""


class SequenceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`/live/sequence`."""

    sequence: SequenceRow
    is_whole: bool
    """Whether it was seen from its beginning; otherwise its tables lack what it had before."""
    tables: dict[int, list[int]]
    """Blocks by group, in the order of the tokens; -1: given back meanwhile."""


class BlockDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`/live/block`."""

    id: int
    name: str | None
    """The name of its content, in hex; null: nothing that can be found."""
    references: int
    owners: list[int]
    """Sequences in whose tables it is."""
    born_ms: int | None
    """When its content became findable; null: before it was watched, or nothing."""
    hits: int
    """Times that a lookup found it, among the events below."""
    events: list[tuple[int, str, int | None, str]]
    """The last ones that name it, the newest first: time, event, sequence, cause."""


def row_of(sequence: Sequence) -> SequenceRow:
    return SequenceRow(
        id=sequence.number,
        request=sequence.request,
        state=sequence.state,
        prompt_tokens=sequence.prompt_tokens,
        max_tokens=sequence.max_tokens,
        output_tokens=sequence.output_tokens,
        hit_blocks=sequence.hit_blocks,
        blocks=sequence.num_blocks,
        preemptions=sequence.preemptions,
        tenant=sequence.tenant,
        changes=list(sequence.changes),
    )


def rows_of(following: LiveFold) -> list[SequenceRow]:
    return [row_of(sequence) for sequence in following.sequences.known.values()]


def base64(column: bytes) -> str:
    return binascii.b2a_base64(column, newline=False).decode()


def encode(document: msgspec.Struct) -> bytes:
    return _ENCODER.encode(document)


def snapshot_bytes(head: Head, columns: dict[str, bytes]) -> bytes:
    """Magic, length of the head (u32), the head in JSON padded to eight bytes, the columns."""
    places, offset = {}, 0
    for name in sorted(columns, key=lambda name: name in _U8):  # u32 first: they stay aligned
        kind = "u8" if name in _U8 else "u32"
        places[name] = (offset, len(columns[name]), kind)
        offset += len(columns[name])
    text = encode(msgspec.structs.replace(head, columns=places))
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join(
        [MAGIC, struct.pack("<I", len(text)), text, *(columns[name] for name in places)]
    )
