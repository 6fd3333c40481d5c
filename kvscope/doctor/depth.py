"""Depths at which a server can be watched now, what they miss, and the change that adds most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from kvscope.doctor.command_line import command_on, is_local
from kvscope.doctor.concepts import OBSERVED, lost
from kvscope.doctor.identity import Asker, Identity
from kvscope.doctor.observers import Observer
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.scrape import detect
from kvscope_exporter.sources.kv_events.discovery import PATHS, NoStreams, Stream, read_streams

State = Literal["yes", "no", "unknown", "-"]
"""`-`: this kind of server has no such depth."""


@dataclass(slots=True)
class Step:
    """One depth: whether it is available now, and how, or why not."""

    state: State
    text: str


@dataclass(slots=True)
class Depths:
    observer: Step
    events: Step
    page: Step
    lost: list[str] = field(default_factory=list)
    """Facts that stay unknown at all available depths."""
    attach: str = ""
    """The way to watch it so: a command line, or an entry of the sidecar's file."""
    change: str = ""
    """The one change that adds most, in words."""
    command: str = ""
    """The same as a command line, or as an entry to write."""


def depths(asker: Asker, server: Identity, observers: Sequence[Observer]) -> Depths:
    """The depths of a server of a known kind. Asks it for its streams."""
    assert server.kind is not None
    ours = [observer for observer in observers if _is_of(observer, server)]
    found = Depths(_observer(server, ours), _events(asker, server), _page(server))
    states = {name: getattr(found, name).state == "yes" for name in ("observer", "events", "page")}
    found.lost = lost(server.kind, **states)
    found.attach = _attachment(server, ours, states)
    _add_change(server, found)
    return found


def _is_of(observer: Observer, server: Identity) -> bool:
    hello = observer.hello
    if hello.server != server.kind or not is_local(urlsplit(server.url).hostname or ""):
        return False
    return not server.models or hello.model_name in server.models


def _attachment(server: Identity, observers: Sequence[Observer], states: Mapping[str, bool]) -> str:
    if server.kind == "kvscope":
        return ""  # it serves its page itself
    if observers:
        folder = observers[0].endpoint.rpartition("/")[0]
        return f"kvscope sidecar --events 'NAME={folder}/*' --url NAME={server.url}"
    if states["events"]:
        return f"- {{name: NAME, url: {server.url}, kv_events: auto}}"
    return f"kvscope sidecar --url NAME={server.url}" if states["page"] else ""


def _observer(server: Identity, observers: Sequence[Observer]) -> Step:
    assert server.kind is not None
    if server.kind == "kvscope":
        return Step("yes", "the page is kvscope's own")
    if server.kind not in OBSERVED:
        return Step("-", f"none exists for {server.kind}")
    if observers:
        folder = observers[0].endpoint.rpartition("/")[0]
        return Step("yes", f"{len(observers)} process(es) publish at {folder}/*")
    if is_local(urlsplit(server.url).hostname or ""):
        return Step("no", "no observer of this model has a socket in the run directory")
    return Step("unknown", "can be seen only on the server's machine: run kvscope doctor there")


def _events(asker: Asker, server: Identity) -> Step:
    if server.kind == "kvscope":
        return Step("-", "its observer reports more")
    if server.kind not in PATHS:
        if server.kind == "dynamo":
            return Step(
                "unknown", "it does not report its endpoints: write them under `kv_events:`"
            )
        return Step("-", f"{server.kind} publishes none")
    try:
        streams = read_streams(server.kind, asker.get(PATHS[server.kind]).body, server.url)
    except FetchError as error:
        return Step("unknown", f"{PATHS[server.kind]} {error}")
    except NoStreams as error:
        return Step("no", str(error))
    return Step("yes", _said(streams))


def _said(streams: Sequence[Stream]) -> str:
    text = ", ".join(stream.endpoint for stream in streams[:4])
    text += f" and {len(streams) - 4} more" if len(streams) > 4 else ""
    return text if all(stream.replay for stream in streams) else f"{text}; without replay"


def _page(server: Identity) -> Step:
    if server.has_families:
        return Step("yes", f"{server.url}/metrics")
    if server.unread:
        return Step("no", f"/metrics {server.unread}")
    if server.kind is not None and server.kind == detect(server.page or ""):
        return Step("yes", f"{server.url}/metrics; no request yet, so no series of requests")
    if server.page is not None:
        return Step("no", "it has no metrics of the server that kvscope reads")
    return Step("no", f"/metrics {server.page_problem}")


_STARTED_BY: dict[ServerKind, str] = {
    "vllm": "vllm serve MODEL …",
    "sglang": "python -m sglang.launch_server --model-path MODEL …",
}


def _add_change(server: Identity, found: Depths) -> None:
    """Add the deepest missing depth; of equals, one that needs no restart."""
    kind = server.kind
    if found.observer.state == "yes":
        return
    if kind in _STARTED_BY:
        found.change = "start it with the observer, which adds all of these:"
        found.command = f"kvscope run -- {_command(server) or _STARTED_BY[kind]}"
    elif found.page.state == "no" and kind in _PAGE_CHANGES:
        found.change, found.command = _PAGE_CHANGES[kind]


def _command(server: Identity) -> str | None:
    parts = urlsplit(server.url)
    if not is_local(parts.hostname or ""):
        return None
    return command_on(parts.port or (443 if parts.scheme == "https" else 80))


_PAGE_CHANGES: dict[str, tuple[str, str]] = {
    "sglang": ("start it with its metrics enabled:", "--enable-metrics"),
    "llama.cpp": ("start it with its metrics enabled:", "--metrics"),
    "ray": (
        "this is Serve's own port; use that of Ray's metrics agent on each node, as listed in "
        "session_latest/prom_metrics_service_discovery.json in Ray's folder (/tmp/ray):",
        "kvscope sidecar --url http://NODE:PORT",
    ),
}
"""By kind of server: what is missing without its page."""
