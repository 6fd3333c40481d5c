"""KV exhaustion: what running sequences may still take, and when the pool will be full."""

from kvscope_exporter.catalogue.metric import ENGINE, Metric
from kvscope_exporter.state.exhaustion import HORIZONS

EXHAUSTION = (
    Metric(
        name="kvscope_kv_committed_blocks",
        kind="gauge",
        help="Blocks that are active once every running sequence has run to its max_tokens.",
        notes="Above kvscope_kv_usable_blocks some sequences will be preempted, unless others end "
        "before.",
        unit="blocks",
        group="exhaustion",
        otel_name="kvscope.kv.committed_blocks",
        events=(
            *("PoolCreated", "SequenceAdded", "SequenceFinished", "StepCompleted"),
            *("BlocksAllocated", "BlocksShared", "BlocksReleased"),
        ),
        counted=(
            *("PoolCreated", "SequenceAdded", "SequenceFinished", "StepCompleted"),
            *("PagesAllocated", "PagesShared", "PagesReleased"),
        ),
    ),
    Metric(
        name="kvscope_kv_time_to_exhaustion_seconds",
        kind="gauge",
        help="Time until the KV cache is full at the last minute's trend; 0 when full.",
        notes="Absent when that is over an hour away, or nothing runs.",
        unit="seconds",
        group="exhaustion",
        otel_name="kvscope.kv.time_to_exhaustion",
        events=("PoolCreated", "BlocksReleased", "StepCompleted"),
        counted=("PoolCreated", "PagesReleased", "StepCompleted"),
    ),
    Metric(
        name="kvscope_kv_exhaustion_probability",
        kind="gauge",
        help="Probability that a running request is preempted for lack of blocks within the "
        "horizon.",
        notes="Estimated from how full the pool is, how many sequences run and wait, and the "
        "forecast's own track record. Absent while nothing runs, and until half a minute after "
        "the first work was seen.",
        unit="ratio",
        group="exhaustion",
        labels={**ENGINE, "horizon_seconds": tuple(str(horizon) for horizon in HORIZONS)},
        otel_name="kvscope.kv.exhaustion_probability",
        events=(
            *("PoolCreated", "SequenceFinished", "StepCompleted"),
            *("BlocksReleased", "AllocationFailed", "RequestPreempted"),
        ),
        counted=(
            *("PoolCreated", "SequenceFinished", "StepCompleted"),
            *("PagesReleased", "RequestPreempted"),
        ),
    ),
)
