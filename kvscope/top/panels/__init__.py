"""The panels below the headline, in the order in which a screen gives them room."""

from kvscope.top.panels.engines import ENGINES
from kvscope.top.panels.memory import MEMORY
from kvscope.top.panels.preemptions import PREEMPTION_TAPE
from kvscope.top.panels.prefixes import TOP_PREFIXES
from kvscope.top.panels.sequences import SEQUENCE_TABLE
from kvscope.top.panels.tenants import TENANT_TABLE
from kvscope.top.panels.whatif import REGRET
from kvscope.top.panels.why import CHAIN

PANELS = (
    PREEMPTION_TAPE,
    SEQUENCE_TABLE,
    REGRET,
    TOP_PREFIXES,
    TENANT_TABLE,
    MEMORY,
    CHAIN,
    ENGINES,
)
