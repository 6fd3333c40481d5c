"""Content: blocks that sequences hold and that no other sequence can find now."""

from typing import get_args

from exporter.catalogue.metric import ENGINE, Metric
from kvscope_events.vocabulary import ContentCause

CONTENT = (
    Metric(
        name="kvscope_kv_content_dropped_blocks_total",
        kind="counter",
        help="Referenced blocks that the prefix cache no longer finds, by cause: replaced by other "
        "content, moved to another block, or invalid.",
        notes="invalid: the content could not be loaded. Unless it was moved, the next request "
        "that needs this content computes it again.",
        unit="blocks",
        group="pool",
        labels={**ENGINE, "cause": get_args(ContentCause)},
        otel_name="kvscope.kv.content.dropped",
        events=("ContentDropped",),
    ),
)
