"""KV exhaustion: what running requests may still take, and when the trend meets the pool's end."""

from exporter.catalogue.metric import Metric

EXHAUSTION = (
    Metric(
        name="kvscope_kv_committed_blocks",
        kind="gauge",
        help="Blocks that are active once every running request has run to its max_tokens; above "
        "the capacity, some will be preempted unless others end before.",
        unit="blocks",
        group="exhaustion",
        otel_name="kvscope.kv.committed_blocks",
        source=(
            *("RequestArrived", "RequestScheduled", "RequestResumed", "RequestPreempted"),
            *("RequestFinished", "BlocksAllocated", "BlocksShared", "BlocksReleased"),
            "StepCompleted",
        ),
    ),
    Metric(
        name="kvscope_kv_time_to_exhaustion_seconds",
        kind="gauge",
        help="Time until active blocks fill the pool if the last minute's trend goes on; 0 when "
        "they do, absent when they are not approaching.",
        unit="seconds",
        group="exhaustion",
        otel_name="kvscope.kv.time_to_exhaustion",
        source=("PoolCreated", "PoolSnapshot", "BlocksReleased", "StepCompleted"),
    ),
)
