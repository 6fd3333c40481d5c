"""Events of the process that owns the device: its start, its memory, and errors."""

from kvscope_events.event import Fact
from kvscope_events.limits import Count, Label, Terms, Time, Times
from kvscope_events.vocabulary import OutOfMemoryAction


class DeviceMemorySampled(Fact, frozen=True):
    """The engine's own view of its device memory, every second and after an out-of-memory error.

    Figures are in bytes. None: the allocator does not report it (no CUDA, or a backend without that
    statistic). torch's figures are those of one moment; weights and KV pool are constant.
    """

    pid: int
    device_uuid: Label | None  # as NVML spells it (GPU-…); None: no CUDA device
    weights_bytes: Count
    kv_pool_bytes: Count
    allocated_bytes: Count | None = None
    active_bytes: Count | None = None
    reserved_bytes: Count | None = None
    requested_bytes: Count | None = None
    inactive_split_bytes: Count | None = None
    allocated_peak_bytes: Count | None = None
    reserved_peak_bytes: Count | None = None
    alloc_retries: Count | None = None
    ooms: Count | None = None
    activation_peak_bytes: Count | None = None  # most that a step took beyond weights and KV pool
    pinned_host_bytes: Count | None = None


class DeviceOutOfMemory(Fact, frozen=True):
    """A step ran out of device memory."""

    wanted_bytes: Count | None  # None: the error does not state it
    action: OutOfMemoryAction
    step_tokens: Count  # of the step that failed
    retry_tokens: Count = 0  # of the smaller step tried next


class StartupProfiled(Fact, frozen=True):
    """Device figures that a process measured before the pool was sized; sent with each later Hello.

    For producers whose pool is created by a process that does not know these figures.
    """

    memory_terms: Terms  # bytes by SizingTerm


class StartProgressed(Fact, frozen=True):
    """A worker's start so far: at the beginning of each phase, every second at least while it reads
    weights, at the end, and with each later Hello."""

    began_ns: Times  # by StartPhase, Unix: a phase lasts until the next one begins
    ended_ns: Time | None = None  # of the last phase; None: it goes on
    weights_read_bytes: Count | None = None  # of the checkpoint, by this worker
    weights_file_bytes: Count | None = None  # the size of the files that it reads
