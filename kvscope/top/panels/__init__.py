"""The panels below the headline, in the order in which a screen gives them room."""

from kvscope.top.panels.engines import ENGINES
from kvscope.top.panels.memory import MEMORY
from kvscope.top.panels.preemptions import PREEMPTION_TAPE
from kvscope.top.panels.prefixes import TOP_PREFIXES
from kvscope.top.panels.printed import CHAIN, TENANT_TABLE
from kvscope.top.panels.sequences import SEQUENCE_TABLE
from kvscope.top.panels.whatif import REGRET

__all__ = ["ENGINES", "PANELS"]
PANELS = (
    *(PREEMPTION_TAPE, SEQUENCE_TABLE, TOP_PREFIXES, TENANT_TABLE),
    *(CHAIN, REGRET, MEMORY, ENGINES),
)
