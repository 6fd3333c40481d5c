"""The servers that can be attached, at which depth, and the events that each then reports."""

from dataclasses import dataclass
from typing import Literal

from kvscope_events.producers import (
    CONTENT_EVENTS,
    ENGINE_EVENTS,
    KV_STREAM_EVENTS,
    LOAD_EVENTS,
    LOOKUP_EVENTS,
    OFFLOAD_EVENTS,
    SGLANG_EVENTS,
    SWAP_EVENTS,
    VLLM_EVENTS,
)
from kvscope_events.vocabulary import ServerKind

SourceKind = Literal["inprocess", "wire", "kv_events", "page"]
"""Value of the label `source`, but for REMOTE."""
REMOTE = "remote"
"""Value of the label `source` for workers and front ends on a host without the scheduler of their
engine, which counts on another page."""
Depth = Literal["observer", "events"]
"""Depth of an attachment; see servers.md. At depth "page" a server reports no events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A column of docs/reference/servers.md."""

    server: str
    depth: Depth
    kind: ServerKind = "kvscope"
    how: str
    """Instructions for attaching it."""
    tells: frozenset[str]
    """Names of events."""
    machine: str = "exact"
    """Coverage of families that are read on the machine and not from events."""


ATTACHMENTS = (
    Attachment(
        server="kvscope",
        depth="observer",
        how="`kvscope engine serve`",
        tells=ENGINE_EVENTS,
    ),
    Attachment(
        server="kvscope, watched by a sidecar",
        depth="observer",
        how="`kvscope engine serve --event-endpoint …` and `kvscope sidecar --events …`",
        tells=ENGINE_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="kvscope without prefix caching",
        depth="observer",
        how="`kvscope engine serve --no-enable-prefix-caching`",
        tells=ENGINE_EVENTS - LOOKUP_EVENTS,
    ),
    Attachment(
        server="kvscope with a swap space",
        depth="observer",
        how="`kvscope engine serve --preemption-mode swap` or `auto`",
        tells=ENGINE_EVENTS | SWAP_EVENTS,
    ),
    Attachment(
        server="vLLM",
        depth="observer",
        kind="vllm",
        how="`kvscope run -- vllm serve MODEL …`",
        tells=VLLM_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="vLLM with offloading to host memory",
        depth="observer",
        kind="vllm",
        how="`kvscope run -- vllm serve MODEL --kv-offloading-size GIB`",
        tells=VLLM_EVENTS | OFFLOAD_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="SGLang, pages of 16 or more",
        depth="observer",
        kind="sglang",
        how="`kvscope run -- python -m sglang.launch_server --page-size 16 …`",
        tells=SGLANG_EVENTS | CONTENT_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="SGLang, smaller pages",
        depth="observer",
        kind="sglang",
        how="`kvscope run -- python -m sglang.launch_server …`",
        tells=SGLANG_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="SGLang with HiCache",
        depth="observer",
        kind="sglang",
        how="the same with `--enable-hierarchical-cache`",
        tells=SGLANG_EVENTS | OFFLOAD_EVENTS | LOAD_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="vLLM",
        depth="events",
        kind="vllm",
        how='`vllm serve MODEL --kv-events-config \'{"enable_kv_cache_events": true, "endpoint": '
        '"tcp://*:5557", "replay_endpoint": "tcp://*:5657"}\'`, and the endpoints, or '
        "`auto`, under `kv_events` in the sidecar's file",
        tells=KV_STREAM_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="SGLang",
        depth="events",
        kind="sglang",
        how='`--kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557", '
        '"replay_endpoint": "tcp://*:5657"}\'`, and the endpoints, or `auto`, under `kv_events`',
        tells=KV_STREAM_EVENTS,
        machine="on the same host",
    ),
    Attachment(
        server="Dynamo",
        depth="events",
        kind="dynamo",
        how="the endpoints of its workers' engines, under `kv_events`",
        tells=KV_STREAM_EVENTS,
        machine="on the same host",
    ),
)
