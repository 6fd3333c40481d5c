"""Observes the servers among the services of a Compose file, and takes everything off again.

Each server gets an observer, which writes what it loads and stays, as `up --wait` wants it, and a
sidecar, both in the same shape as in a pod. What the server loads is kept on disk: after a restart
of the machine, Docker starts all containers at once, and the server must find it at its start.
"""

import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kvscope.inject.edit import Editor
from kvscope.inject.environment import as_mapping, extend_environment, restore_environment
from kvscope.inject.kubernetes import Wish
from kvscope.inject.pod import CODE, OBSERVER, PLUGIN_FOLDER, RUN, SIDECAR, SOCKETS, SOCKETS_FOLDER
from kvscope.inject.published import free_port, ports_of_the_host
from kvscope.inject.report import Place, Report, Turn
from kvscope.inject.servers import NAMES, Server, server_in
from kvscope.inject.tree import (
    LeftAloneError,
    Node,
    child,
    entry,
    is_list,
    is_mapping,
    mapping,
    plain,
)
from kvscope.inject.users import user_of
from kvscope.run.plugin_folder import PLUGIN
from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE

_SAFE: dict[str, object] = {
    "restart": "unless-stopped",
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "init": True,
    "read_only": True,
    "tmpfs": ["/tmp"],
}
_OFTEN: dict[str, object] = {
    "interval": "5s",
    "timeout": "5s",
    "retries": 3,
    "start_period": "30s",
}
_MEMORY = {"type": "tmpfs", "device": "tmpfs", "o": "size=16m,mode=1777"}
"""The same for every user: Compose keeps a volume whose options have changed as it was."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WRITTEN = "/tmp/written"
"""A file in the observer's memory: what it has to write is there in full."""


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    node: Node
    content: Mapping[str, Any]
    server: Server


def inject(root: Node, edit: Editor, wish: Wish, report: Report, turn: Turn) -> None:
    """Observe each service that runs a server; further ones take further ports, those that are
    observed already the first."""
    services = mapping(plain(root).get("services"))
    ours = _ours(services)
    taken = ports_of_the_host(services)
    observed: list[tuple[_Found, int]] = []
    added: dict[str, object] = {}
    volumes: dict[str, object] = {}
    inner = [pair for pair in _services(root) if pair[0] not in ours]
    for name, node in sorted(inner, key=lambda pair: turn.place(pair[0]) not in turn.words):
        place = turn.place(name)
        if report.keeps(turn, place, name):
            continue
        checkpoint = edit.checkpoint()
        try:
            found = _server_of(name, node, wish)
            if found is None:
                report.unrecognised(name, [name])
                continue
            _check_unobserved(found, services)
            user = _user(found, wish)
            port = free_port(wish.port, taken)
            _observe(found, edit, wish)
        except LeftAloneError as error:
            edit.back_to(checkpoint)
            report.left(name, error, place)
            continue
        taken.add(port)
        observed.append((found, port))
        added[f"{name}-{OBSERVER}"] = _observer(found, user, wish)
        added[f"{name}-{SIDECAR}"] = _sidecar(found, user, port, wish)
        volumes[f"{name}-{OBSERVER}"] = {}
        volumes[f"{name}-{SOCKETS}"] = {"driver_opts": _MEMORY}
    if not observed:
        return
    try:
        edit.put(root, "services", added)
        edit.put(root, "volumes", volumes)
    except LeftAloneError as error:
        edit.back_to(0)
        for found, _ in observed:
            report.left(found.name, error, turn.place(found.name))
        return
    report.hints[
        f"docker compose up pulls {wish.image} first: if it cannot, it ends with an error and "
        "starts nothing"
    ] = None
    for found, port in observed:
        word = turn.words.get(turn.place(found.name)) or "observed"
        page = f"page at http://127.0.0.1:{port}/metrics"
        text = f"{word} ({NAMES[found.server.kind]}): {page}"
        report.did(found.name, text, turn.place(found.name))
        url, remark = _page(found)
        if url is None:
            report.note(found.name, remark)
        if found.content.get("env_file"):
            report.note(
                found.name,
                "it has an env_file: PYTHONPATH there no longer counts, and if VLLM_PLUGINS or "
                f"SGLANG_PLUGINS is there, add {PLUGIN} to it",
            )


def observed(root: Node) -> dict[str, Mapping[str, Any]]:
    """The services that have something of ours, and our parts."""
    whole = plain(root)
    services, volumes = (mapping(whole.get(key)) for key in ("services", "volumes"))
    found: dict[str, Mapping[str, Any]] = {}
    for name, _ in _services(root):
        content = mapping(services.get(name))
        variables = as_mapping(content.get("environment"))
        is_ours = variables.get(DIRECTORY_VARIABLE) == SOCKETS_FOLDER
        if name in _ours(services) or not (is_ours or f"{name}-{OBSERVER}" in services):
            continue
        found[name] = {
            **{key: services.get(key) for key in _names(name)},
            **{f"volumes/{key}": volumes.get(key) for key in _names(name)},
            "environment": variables,
            "volumes": content.get("volumes"),
            "depends_on": content.get("depends_on"),
        }
    return found


def remove(
    root: Node, edit: Editor, report: Report, turn: Turn, only: Container[Place] | None = None
) -> None:
    """Take observer and sidecar off each service. only: no others."""
    present = _ours(name for name, _ in _services(root))
    chosen = [
        name
        for name, _ in _services(root)
        if present & {*_names(name)} and (only is None or turn.place(name) in only)
    ]
    ours = {part for name in chosen for part in _names(name)}

    def is_ours(part: Any) -> bool:
        """Whether it is an entry with one of our names, or a mount of such a volume."""
        source = part.get("source") if isinstance(part, Mapping) else part
        return (part[0] if isinstance(part, tuple) else str(source).partition(":")[0]) in ours

    for name, node in _services(root):
        place = turn.place(name)
        if name in ours or (only is not None and place not in only):
            continue
        with report.removal(name, edit, place):
            restore_environment(node, "environment", edit)
            edit.drop(node, "volumes", is_ours)
            edit.drop(node, "depends_on", is_ours)
    try:
        for key in ("services", "volumes"):
            edit.drop(root, key, is_ours)
    except LeftAloneError as error:
        edit.back_to(0)
        for name in chosen:
            report.left(name, error, turn.place(name))


def _names(name: str) -> list[str]:
    """The services and volumes that are added for a server's service."""
    return [f"{name}-{part}" for part in (OBSERVER, SIDECAR, SOCKETS)]


def _ours(services: Iterable[str]) -> set[str]:
    """The names of all services that were added, and more of that kind."""
    end = f"-{OBSERVER}"
    servers = [name.removesuffix(end) for name in services if name.endswith(end)]
    return {part for name in servers for part in _names(name)}


def _services(root: Node) -> Iterator[tuple[str, Node]]:
    found = entry(root, "services")
    for name, node in found[1].value if found and is_mapping(found[1]) else ():
        if is_mapping(node):
            yield name.value, node


def _server_of(name: str, node: Node, wish: Wish) -> _Found | None:
    """Raises LeftAloneError."""
    if wish.container is not None and name != wish.container:
        return None
    content = plain(node)
    entry_point, command = (_words(content.get(key)) for key in ("entrypoint", "command"))
    words, image = [*entry_point, *command], str(content.get("image") or "")
    server = server_in(
        words, image, has_command=bool(entry_point), is_named=wish.container is not None
    )
    return None if server is None else _Found(name, node, content, server)


def _words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(word) for word in value]
    try:
        return shlex.split(str(value or ""))
    except ValueError as error:
        raise LeftAloneError(f"its command cannot be read: {error}") from None


def _check_unobserved(found: _Found, services: Container[str]) -> None:
    """Raises LeftAloneError."""
    if DIRECTORY_VARIABLE in as_mapping(found.content.get("environment")):
        raise LeftAloneError(
            f"it sets {DIRECTORY_VARIABLE}, so it has an observer that this command did not add: "
            "take that off first"
        )
    for name in _names(found.name):
        if name in services:
            raise LeftAloneError(f"a service {name} is there, as ours would be named: rename it")


def _user(found: _Found, wish: Wish) -> int:
    """Raises LeftAloneError."""
    given = str(found.content.get("user") or "").partition(":")[0]
    if given.isdecimal():
        return int(given)
    user = None if given else user_of(str(found.content.get("image") or ""))
    user = user if wish.user is None else wish.user
    if user is None:
        raise LeftAloneError(
            "the number of its user is not known, and sockets are private to it: give it with "
            "--user UID"
        )
    return user


def _observe(found: _Found, edit: Editor, wish: Wish) -> None:
    """Change the server's own service. Raises LeftAloneError."""
    name, content = found.name, found.content
    deployed = mapping(content.get("deploy"))
    if str(content.get("scale") or deployed.get("replicas") or 1) != "1":
        raise LeftAloneError("its replicas would share one folder of sockets: write a service each")
    waits = child(found.node, "depends_on")
    if waits is not None and is_list(waits):
        raise LeftAloneError(
            "its depends_on is a list, which cannot wait for the observer: write it as a mapping "
            "with conditions"
        )
    edit.own(found.node)
    edit.indent_like(found.node, "volumes")
    extend_environment(found.node, "environment", edit)
    mounts = [f"{name}-{OBSERVER}:{CODE}:ro", f"{name}-{SOCKETS}:{RUN}"]
    edit.extend(found.node, "volumes", mounts)
    # Docker starts an optional one first as well, and does without it if it cannot.
    waits_for: dict[str, object] = (
        {"condition": "service_started", "required": False}
        if wish.is_fail_open
        else {"condition": "service_healthy"}
    )
    edit.put(found.node, "depends_on", {f"{name}-{OBSERVER}": waits_for})


def _observer(found: _Found, user: int, wish: Wish) -> dict[str, object]:
    write = f"kvscope observer install {PLUGIN_FOLDER} >/dev/null && touch {_WRITTEN}"
    return {
        "image": wish.image,
        "entrypoint": ["sh", "-c"],
        "command": [f"{write} && exec sleep infinity"],
        **_kept(found, "profiles"),
        "network_mode": "none",
        "user": str(user),
        **_SAFE,
        "volumes": [f"{found.name}-{OBSERVER}:{CODE}"],
        "healthcheck": {"test": ["CMD", "test", "-f", _WRITTEN], **_OFTEN},
        "mem_limit": "256m",
    }


def _sidecar(found: _Found, user: int, port: int, wish: Wish) -> dict[str, object]:
    kind, on_host = found.server.kind, found.content.get("network_mode") == "host"
    inner = port if on_host else wish.port
    command = [
        "sidecar",
        f"--host={'127.0.0.1' if on_host else '0.0.0.0'}",
        f"--port={inner}",
        f"--events={kind}=ipc://{SOCKETS_FOLDER}/*",
    ]
    url, _ = _page(found)
    if url is not None:
        command.append(f"--url={kind}={url}")
    health = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{inner}/health', timeout=2)"
    network: dict[str, object] = (
        {"network_mode": "host"}
        if on_host
        else {**_kept(found, "networks"), "ports": [f"127.0.0.1:{port}:{inner}"]}
    )
    return {
        "image": wish.image,
        "command": command,
        **_kept(found, "profiles"),
        "user": str(user),
        **_SAFE,
        **network,
        "volumes": [f"{found.name}-{SOCKETS}:{RUN}:ro"],
        "healthcheck": {"test": ["CMD", "python", "-c", health], **_OFTEN},
        "mem_limit": "1g",
    }


def _kept(found: _Found, key: str) -> dict[str, object]:
    """A setting of the server's that its companions need as well."""
    value = found.content.get(key)
    return {key: list(value)} if value and isinstance(value, (list, dict)) else {}


def _page(found: _Found) -> tuple[str | None, str]:
    """Base URL of the server's own page, seen from its sidecar, or None and the reason."""
    url, network = found.server.url, found.content.get("network_mode")
    if url is None or network == "host":
        return url, found.server.remark
    if network is not None:
        return None, f"its page is not read: its network is that of {network}"
    if not _is_reached(found):
        return None, "its page is not read: it listens on its container's loopback alone"
    return url.replace("//127.0.0.1:", f"//{found.name}:"), ""


def _is_reached(found: _Found) -> bool:
    """Whether the server listens beyond its container's loopback; SGLang does if asked to."""
    host = "" if found.server.kind == "vllm" else "127.0.0.1"
    for word, following in pairwise([*found.server.arguments, ""]):
        if word == "--host" or word.startswith("--host="):
            host = word.partition("=")[2] or following
    return host not in _LOOPBACK
