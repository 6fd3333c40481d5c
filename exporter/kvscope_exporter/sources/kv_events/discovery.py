"""Asks a server where it publishes its KV events: vLLM since 0.32, and SGLang."""

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.fetch.error import JSON_ERRORS

MAX_RANKS = 64
MAX_ANSWER_BYTES = 1 << 20
PATHS: dict[ServerKind, str] = {"vllm": "/kv_event_sources", "sglang": "/server_info"}
"""Paths to ask at; other kinds do not publish this."""
_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\d{1,5})")
_EVERYWHERE = ("*", "0.0.0.0", "[::]", "::")


_Rank = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\Z")]
"""Limit for text that becomes a label."""


class Stream(NamedTuple):
    """Address of one engine's events."""

    engine: str
    endpoint: str
    replay: str | None
    topic: str


class NoStreams(Exception):
    """No stream can be read from here; the message says why, and what to do."""


class _VllmSource(msgspec.Struct, frozen=True):
    enable_kv_cache_events: bool = False
    publisher: str | None = None
    endpoint: str = ""
    replay_endpoint: str | None = None
    topic: str = ""


class _SglangEvents(msgspec.Struct, frozen=True):
    publisher: str | None = None
    endpoint_host: str = ""
    endpoint_port_base: int = 0
    topic: str = ""
    dp_size: int = 1
    replay_endpoint_port_base: int | None = None


class _SglangInfo(msgspec.Struct, frozen=True):
    kv_events: _SglangEvents | None = None


def read_streams(kind: ServerKind, body: bytes, url: str) -> list[Stream]:
    """The streams in the answer, reached at the host of `url`. Raises NoStreams."""
    host = urlsplit(url).hostname or ""
    host = f"[{host}]" if ":" in host else host
    try:
        streams = _READERS[kind](body, host)
    except JSON_ERRORS as error:
        raise NoStreams(f"{PATHS[kind]} cannot be read: {error}") from None
    if not streams:
        raise NoStreams("it publishes no KV events; switch them on with --kv-events-config")
    return streams[:MAX_RANKS]


def _of_vllm(body: bytes, host: str) -> list[Stream]:
    ranks = msgspec.json.decode(body, type=dict[_Rank, _VllmSource])
    return [
        Stream(
            rank,
            _reachable(source.endpoint, host),
            None if source.replay_endpoint is None else _reachable(source.replay_endpoint, host),
            source.topic,
        )
        for rank, source in sorted(ranks.items(), key=lambda item: (len(item[0]), item[0]))
        if source.enable_kv_cache_events and source.publisher == "zmq"
    ]


def _of_sglang(body: bytes, host: str) -> list[Stream]:
    events = msgspec.json.decode(body, type=_SglangInfo).kv_events
    if events is None or events.publisher != "zmq":
        return []
    base, replay = events.endpoint_port_base, events.replay_endpoint_port_base
    return [
        Stream(
            str(rank),
            _reachable(f"tcp://{events.endpoint_host}:{base + rank}", host),
            None if replay is None else _reachable(f"tcp://*:{replay + rank}", host),
            events.topic,
        )
        for rank in range(max(0, min(events.dp_size, MAX_RANKS)))
    ]


def _reachable(endpoint: str, host: str) -> str:
    """Use only ports of the server's own host: an answer must not lead anywhere else."""
    match = _TCP.fullmatch(endpoint)
    if match is not None and match["host"] in _EVERYWHERE and 0 < int(match["port"]) < 2**16:
        return f"tcp://{host}:{match['port']}"
    raise NoStreams(
        f"it publishes at {endpoint[:200]!r}, which is not a port that it opens on all addresses: "
        "write the endpoint under `kv_events:`, with `bind: true` if the server connects to it"
    )


_READERS: dict[ServerKind, Callable[[bytes, str], list[Stream]]] = {
    "vllm": _of_vllm,
    "sglang": _of_sglang,
}
