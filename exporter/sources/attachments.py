"""What each kind of server can tell at each depth of attachment; docs/servers.md shows it."""

from dataclasses import dataclass
from typing import Literal

from kvscope_events.events import EVENT_NAMES

Depth = Literal["observer"]
"""How deep a server is attached; see docs/servers.md."""

ENGINE_TELLS = frozenset(EVENT_NAMES) - {"ObserverStopped", "ContentDropped"}
"""Our own engine never stops observing itself, and never takes a referenced block's content."""
LOOKUP_EVENTS = frozenset({"PrefixLookup"})
"""What nobody can tell without a prefix cache; that no block is ever cached or evicted, is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A column of docs/servers.md."""

    server: str
    depth: Depth
    how: str
    """What the operator does for it."""
    tells: frozenset[str]
    """Names of events."""
    machine: str = "exact"
    """What the families that are read on the machine, not told by events, are worth."""


ATTACHMENTS = (
    Attachment(
        server="kvscope",
        depth="observer",
        how="`kvscope serve`",
        tells=ENGINE_TELLS,
    ),
    Attachment(
        server="kvscope, watched by a sidecar",
        depth="observer",
        how="`kvscope serve --event-endpoint …` and `kvscope sidecar --events …`",
        tells=ENGINE_TELLS,
        machine="on the same host",
    ),
    Attachment(
        server="kvscope without prefix caching",
        depth="observer",
        how="`kvscope serve --no-enable-prefix-caching`",
        tells=ENGINE_TELLS - LOOKUP_EVENTS,
    ),
)
