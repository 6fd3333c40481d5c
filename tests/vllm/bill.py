"""The bill of preemption from an observed stream, and whether plain loops agree with it.

Runs in the Python of a vLLM, as `replay`.
"""

from collections import Counter
from typing import Any

from kvscope_events.events import Batch
from kvscope_exporter.state.preemption import Preemption
from kvscope_exporter.state.preemption.fold import HISTORY
from tests.exporter.preemption_oracle import bill, bill_of, history, history_of, play


def billed(batches: list[Batch]) -> dict[str, Any]:
    """The costs, and `agrees`: whether every sum and every victim equals that of the loops."""
    fold = Preemption()
    play(list(batches), fold)
    victims = history(list(batches))
    return {
        "agrees": history_of(fold) == victims[-HISTORY:] and bill_of(fold) == bill(list(batches)),
        "states": dict(Counter(victim["state"] for victim in victims)),
        "unknown_takers": sum(victim["taken_by"] is None for victim in victims),
        "taken": sum(blocks for v in victims for _, blocks in v["taken_by"] or ()),
        "kept": sum(victim["kept"] or 0 for victim in victims),
        "wanted": sum(victim["wanted_by"] is not None for victim in victims),
        "causes": dict(Counter(victim["event"].cause for victim in victims)),
    }
