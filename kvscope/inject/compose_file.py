"""Observes the servers among the services of a Compose file, and takes everything off again.

Each server gets an observer, which writes what it loads and stays, as `up --wait` wants it, and a
sidecar, both in the same shape as in a pod.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kvscope.inject.edit import Editor
from kvscope.inject.environment import as_mapping, extend_environment, restore_environment
from kvscope.inject.kubernetes import Wish
from kvscope.inject.pod import CODE, OBSERVER, PLUGIN_FOLDER, RUN, SIDECAR, SOCKETS, SOCKETS_FOLDER
from kvscope.inject.report import Report
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
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    node: Node
    content: Mapping[str, Any]
    words: list[str]
    server: Server


def inject(root: Node, edit: Editor, wish: Wish, report: Report) -> None:
    """Observe each service that runs a server; further ones take further ports."""
    services = mapping(plain(root).get("services"))
    observed: list[tuple[_Found, int]] = []
    added: dict[str, object] = {}
    volumes: dict[str, object] = {}
    for name, node in _services(root):
        checkpoint = edit.checkpoint()
        try:
            found = _server_of(name, node, wish)
            if found is None:
                report.others.append(name)
                continue
            variables = as_mapping(found.content.get("environment"))
            if f"{name}-{SIDECAR}" in services or DIRECTORY_VARIABLE in variables:
                report.did(name, "already observed")
                continue
            port, user = wish.port + len(observed), _user(found, wish)
            _observe(found, edit)
        except LeftAloneError as error:
            edit.back_to(checkpoint)
            report.left(name, error)
            continue
        observed.append((found, port))
        added[f"{name}-{OBSERVER}"] = _observer(found, user, wish)
        added[f"{name}-{SIDECAR}"] = _sidecar(found, user, port, wish)
        memory = {"type": "tmpfs", "device": "tmpfs", "o": f"size=16m,uid={user},mode=0755"}
        for volume in (OBSERVER, SOCKETS):
            volumes[f"{name}-{volume}"] = {"driver_opts": memory}
    if not observed:
        return
    try:
        edit.put(root, "services", added)
        edit.put(root, "volumes", volumes)
    except LeftAloneError as error:
        edit.back_to(0)
        report.left("all services", error)
        return
    for found, port in observed:
        page = f"page at http://127.0.0.1:{port}/metrics"
        report.did(found.name, f"observed ({NAMES[found.server.kind]}): {page}")
        if found.content.get("env_file"):
            report.note(found.name, "it has an env_file: PYTHONPATH there no longer counts")


def remove(root: Node, edit: Editor, report: Report) -> None:
    """Take observer and sidecar off each service."""
    for name, node in _services(root):
        if name.endswith((f"-{SIDECAR}", f"-{OBSERVER}")):
            continue
        with report.removal(name, edit):
            restore_environment(node, "environment", edit)
            edit.drop(node, "volumes", _is_mount)
            edit.drop(node, "depends_on", _is_named)
    for key in ("services", "volumes"):
        edit.drop(root, key, _is_named)


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
    return None if server is None else _Found(name, node, content, words, server)


def _words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(word) for word in value]
    try:
        return shlex.split(str(value or ""))
    except ValueError as error:
        raise LeftAloneError(f"its command cannot be read: {error}") from None


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


def _observe(found: _Found, edit: Editor) -> None:
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
    edit.put(found.node, "depends_on", {f"{name}-{OBSERVER}": {"condition": "service_healthy"}})


def _observer(found: _Found, user: int, wish: Wish) -> dict[str, object]:
    script = f"kvscope observer {PLUGIN_FOLDER} >/dev/null && exec sleep infinity"
    return {
        "image": wish.image,
        "entrypoint": ["sh", "-c"],
        "command": [script],
        **_kept(found, "profiles"),
        "network_mode": "none",
        "user": str(user),
        **_SAFE,
        "volumes": [f"{found.name}-{OBSERVER}:{CODE}"],
        "healthcheck": {"test": ["CMD", "test", "-d", f"{PLUGIN_FOLDER}/kvscope_events"], **_OFTEN},
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
    url = found.server.url
    if url is not None and not on_host:
        url = url.replace("//127.0.0.1:", f"//{found.name}:") if _is_reached(found) else None
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


def _is_reached(found: _Found) -> bool:
    """Whether the server listens beyond its container's loopback; SGLang does if asked to."""
    host = "" if found.server.kind == "vllm" else "127.0.0.1"
    for word, following in pairwise([*found.words, ""]):
        if word == "--host" or word.startswith("--host="):
            host = word.partition("=")[2] or following
    return host not in _LOOPBACK


def _is_mount(volume: Any) -> bool:
    source = str(volume.get("source")) if isinstance(volume, Mapping) else str(volume)
    return source.partition(":")[0].endswith((f"-{OBSERVER}", f"-{SOCKETS}"))


def _is_named(pair: Any) -> bool:
    ends = f"-{OBSERVER}", f"-{SOCKETS}", f"-{SIDECAR}"
    return isinstance(pair, tuple) and pair[0].endswith(ends)
