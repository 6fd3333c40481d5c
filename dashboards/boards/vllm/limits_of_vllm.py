"""vLLM: what its metrics do not show."""

from dashboards.kit.frame import Row
from dashboards.kit.tables import note

_LIMITS = """
Not in vLLM's metrics, and therefore not here: blocks that are cached or free · why a block was \
missed · tokens recomputed and seconds lost by preemptions · when the pool will be full · \
fragmentation · when the last step was, so that a hang shows only after two minutes · where the \
card's memory went · how close a step is to running out of it. kvscope's exporter adds them: \
import the other dashboards with it.
"""


def row() -> Row:
    return Row(
        600, "What is missing here?", [note(601, "What vLLM does not say", _LIMITS, height=4)]
    )
