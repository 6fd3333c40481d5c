"""Facts about one engine at one moment, for the adviser; unknown ones are None."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.adviser.proposal import Option
from kvscope_exporter.state.recent import NEED_STEPS, Slot

MARGIN_SHARE = 0.02
"""Share of a device's or host's memory that no proposal touches."""

BACKLOG = 4
"""Waiting sequences per running one, on average, above which an engine is overloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Spare memory of one device or of the host."""

    name: str
    """`GPU 0`, or `host`."""
    total_bytes: int
    free_bytes: int
    """Bytes that the next allocation can get."""
    largest_step_bytes: int
    """Bytes of that which the largest step takes while it runs; 0 on a host, where it is in use."""
    bytes_per_block: int
    """Bytes of the pool's part there, or of all pools there that the option changes."""
    own_bytes_per_block: int
    """Bytes of only this pool's part, in one process: the divisor for an option that sets each
    process's share of the device.
    """
    is_profiled: bool = False
    """Whether the largest step that the options allow ran at start-up: no later one is larger."""

    @property
    def margin_bytes(self) -> int:
        return int(self.total_bytes * MARGIN_SHARE)

    @property
    def spare_bytes(self) -> int:
        """Bytes that a proposal may take; negative: the largest step would no longer fit."""
        return self.free_bytes - self.largest_step_bytes - self.margin_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The rule that gave the pool its size: a share of a device's whole memory."""

    total_bytes: int
    utilization: float
    in_use_at_start_bytes: int


@dataclass(frozen=True, slots=True)
class Point:
    """Hits at one size of the pool; None stands for an unbounded pool."""

    capacity_blocks: int | None
    hit_blocks: int
    loaded_blocks: int = 0
    """The part of them that a tier below the pool or a connector supplied: not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitCurve:
    """Hits at other sizes of the pool over one window; its points rise in both."""

    points: Sequence[Point]
    queried_blocks: int
    seconds: float
    exact_up_to_blocks: int | None = None
    """Above this size hits are lower bounds: the content of such a pool was not known all the time.
    None: all are exact."""
    error_ratio: float | None = None
    """Difference between the curve at the present size and the engine's own hits, summed over all
    look-ups so far, relative to the blocks looked up; None: not known."""

    retaining_hit_blocks: int | None = None
    """Hits at the present size if every window and state were kept; None: not known, or they are.
    """

    def hits(self, capacity_blocks: float) -> float | None:
        """Hits, interpolated between points; None below the smallest one, and without points."""
        return self._at(capacity_blocks, lambda point: point.hit_blocks)

    def saved(self, capacity_blocks: float) -> float | None:
        """The same for the blocks that are found instead of being computed."""
        return self._at(capacity_blocks, lambda point: point.hit_blocks - point.loaded_blocks)

    def _at(self, capacity_blocks: float, value: Callable[[Point], int]) -> float | None:
        below: Point | None = None
        for point in self.points:
            if point.capacity_blocks is None:
                break
            if point.capacity_blocks >= capacity_blocks:
                if below is None or below.capacity_blocks is None:
                    is_it = point.capacity_blocks == capacity_blocks
                    return float(value(point)) if is_it else None
                run = point.capacity_blocks - below.capacity_blocks
                share = (capacity_blocks - below.capacity_blocks) / run
                return value(below) + share * (value(point) - value(below))
            below = point
        return None if below is None else float(value(below))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    server: ServerKind = "vllm"
    usable_blocks: int
    reserved_blocks: int = 0
    block_size: int
    is_plain: bool = True
    """Whether the pool has one group of layers, all with full attention: only then do blocks show
    what a sequence needs, and what another size would hold.
    """
    caches_prefixes: bool = True
    knows_unfilled: bool = True
    """Whether the server reports how many slots of its active blocks are written."""
    bytes_per_block: int | None = None
    """Bytes of a block in the whole engine; None: no tensors back the pool, or not reported."""
    engines: int = 1
    """Number of this server's engines."""
    sizing: Sizing | None = None
    """None: the size was configured, or the rule is not known."""
    rooms: Sequence[Room] = ()
    """Empty: not known."""
    uses_device: bool = False
    """Whether its steps take a device's memory, known or not; False: on the host, or simulated."""
    pool_option: Option = "num_gpu_blocks_override"
    """The option that sets the pool's size; `gpu_memory_utilization` needs `sizing`."""
    is_option_set: bool = True
    """Whether that option gave the present size; False: not set, or not known."""
    longest_blocks: int | None = None
    """Blocks of a sequence of the longest length, over all groups of layers; None: not known."""
    curve: HitCurve | None = None
    seconds: float = 0.0
    """Length of the window of `load`."""
    load: Slot | None = None
    largest_step: int | None = None
    """Tokens of the largest step of the whole session, to which the rooms' largest steps refer."""
    max_num_seqs: int | None = None
    """The limit on running sequences; None: the server does not say."""
    step_budget: int | None = None
    """The limit on the tokens of a step; None: the server does not say."""
    step_fit: tuple[int, int] | None = None
    """Nanoseconds of a step, and those that each token of a prompt adds; None: not known."""
    waiting_for_sequences: float = 0.0
    """Mean number of requests that waited for a sequence slot, over the window."""
    waiting_for_tokens: float = 0.0
    """The same, for tokens of a step."""
    held_up: float = 0.0
    """Share of the running sequences' time in which prompts made their tokens late."""
    conservativeness: float | None = None
    """SGLang's factor on the output that it expects of running requests; None: another server, or
    not known."""
    can_swap: bool = False
    """Whether the server can copy the blocks of preempted sequences to the host."""
    swap_blocks: int = 0
    """Blocks of its swap pool; 0 without one."""
    can_offload: bool = False
    """Whether the server can keep copies of blocks in host memory: a vLLM or SGLang with a device,
    without another connector."""
    has_watermark: bool = False
    """Whether an option makes admissions leave a share of the pool free."""
    retention: int | None = None
    """Tokens from one kept window or state to the next; 0: only those where a request is known to
    resume. None: all are kept, the model has no such layers, or not known."""
    alignment: int | None = None
    """Tokens of which a hit is a multiple; None: not known."""
    tier_blocks: int = 0
    """Blocks that its host tier can hold; 0 without one."""
    host: Room | None = None
    """Memory left on the host; None: not known."""
    lost_blocks: int = 0
    """Most blocks that waiting victims had lost at the same time; 0: none, or unknown."""

    @property
    def room(self) -> Room | None:
        """The room with space for the fewest blocks."""
        if not self.rooms:
            return None
        return min(self.rooms, key=lambda room: room.spare_bytes / max(1, room.bytes_per_block))

    @property
    def spare_blocks(self) -> int | None:
        """Blocks by which the pool may grow; negative: must shrink. None: not known."""
        room = self.room
        if room is None or not room.bytes_per_block:
            return None
        return room.spare_bytes // room.bytes_per_block

    def recomputed_per_second(self, cause: str) -> float:
        """Tokens computed again after preemptions of one cause."""
        load = self.load
        if load is None or not self.seconds:
            return 0.0
        return sum(n for c, n in load.recomputed_tokens.items() if c == cause) / self.seconds

    @property
    def hits_are_unknown(self) -> bool:
        """Whether there is a prefix cache whose hits at other sizes are not known."""
        curve = self.curve
        return self.caches_prefixes and (curve is None or not curve.queried_blocks)

    @property
    def is_overloaded(self) -> bool:
        """Whether more wait than a larger pool could serve: it would fill up as well."""
        load = self.load
        return load is not None and load.waiting_ns > BACKLOG * load.running_ns

    def excess(self, pools: float, scale: float = 1.0) -> float:
        """Demand in blocks beyond `pools` times this pool, averaged over the time with steps.

        scale: factor by which the demand is multiplied.
        """
        load = self.load
        if load is None or not load.busy_ns:
            return 0.0
        over = 0.0
        for position, time_ns in enumerate(load.need_ns):
            if time_ns:
                need = scale * (position + 0.5) / NEED_STEPS
                over += time_ns * max(0.0, need - pools)
        return over / load.busy_ns * self.usable_blocks

    @property
    def most_needed(self) -> float:
        """Peak demand for blocks, in pools, which the curve does not cover."""
        load = self.load
        bins = [] if load is None else [at + 1 for at, ns in enumerate(load.need_ns) if ns]
        return max(bins, default=0) / NEED_STEPS
