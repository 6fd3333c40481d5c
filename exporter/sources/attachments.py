"""The events that each kind of server reports, by depth of attachment; see servers.md."""

from dataclasses import dataclass
from typing import Literal

from kvscope_events.events import EVENT_NAMES
from kvscope_events.vocabulary import ServerKind

Depth = Literal["observer", "events"]
"""How deeply a server is attached; see servers.md. At depth "page" it reports no events."""

CONTENT_EVENTS = frozenset({"NamesStored", "NamesRemoved", "NamesCleared"})
"""Events of a content stream, which names what is cached and knows no blocks."""
KV_EVENTS_TELLS = CONTENT_EVENTS
"""What a server that publishes KV events reports; kvscope makes its Hello, without facts of it."""
SWAP_EVENTS = frozenset({"BlocksSwapped"})
"""Events of an engine that keeps the KV of preempted sequences on the host."""
ENGINE_TELLS = (
    frozenset(EVENT_NAMES)
    - CONTENT_EVENTS
    - SWAP_EVENTS
    - {"ObserverStopped", "ContentDropped", "StartupProfiled"}
)
"""Our own engine never stops observing itself, never drops a referenced block's content, and knows
its start-up figures when it creates the pool. It swaps where it is told to."""
VLLM_TELLS = (
    frozenset(EVENT_NAMES)
    - CONTENT_EVENTS
    - SWAP_EVENTS
    - {"DeviceOutOfMemory", "RequestRejected", "BlockCopied"}
)
"""What the observer in vLLM reports, from the scheduler's process and, about memory, from workers.
Requests are refused by the front end, in another process; an engine that runs out of device memory
dies of it. Its scheduler forks and swaps nothing."""
LOOKUP_EVENTS = frozenset({"PrefixLookup"})
"""Events that need a prefix cache. Without one it is still known that no block is ever cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A column of docs/reference/servers.md."""

    server: str
    depth: Depth
    kind: ServerKind = "kvscope"
    how: str
    """What the operator does to attach it."""
    tells: frozenset[str]
    """Names of events."""
    machine: str = "exact"
    """How well families are known that are read on the machine and not from events."""


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
    Attachment(
        server="kvscope with a swap space",
        depth="observer",
        how="`kvscope serve --preemption-mode swap` or `auto`",
        tells=ENGINE_TELLS | SWAP_EVENTS,
    ),
    Attachment(
        server="a recording of kvscope",
        depth="observer",
        how="`kvscope sidecar --events NAME=file:///PATH`",
        tells=ENGINE_TELLS,
        machine="absent",
    ),
    Attachment(
        server="vLLM",
        depth="observer",
        kind="vllm",
        how="`kvscope run -- vllm serve MODEL …`",
        tells=VLLM_TELLS,
        machine="on the same host",
    ),
    Attachment(
        server="vLLM",
        depth="events",
        kind="vllm",
        how='`vllm serve MODEL --kv-events-config \'{"enable_kv_cache_events": true, "endpoint": '
        '"tcp://*:5557", "replay_endpoint": "tcp://*:5657"}\'`, and the endpoints, or '
        "`auto`, under `kv_events` in the sidecar's file",
        tells=KV_EVENTS_TELLS,
        machine="on the same host",
    ),
    Attachment(
        server="SGLang",
        depth="events",
        kind="sglang",
        how='`--kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557", '
        '"replay_endpoint": "tcp://*:5657"}\'`, and the endpoints, or `auto`, under `kv_events`',
        tells=KV_EVENTS_TELLS,
        machine="on the same host",
    ),
    Attachment(
        server="Dynamo",
        depth="events",
        kind="dynamo",
        how="the endpoints of its workers' engines, under `kv_events`",
        tells=KV_EVENTS_TELLS,
        machine="on the same host",
    ),
)
