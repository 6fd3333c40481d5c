"""Observes the servers among the services of a Compose file, and takes everything off again.

Each server gets an observer, which writes what it loads and stays, as `up --wait` wants it, and a
sidecar, both in the same shape as in a pod. What the server loads is kept on disk: after a restart
of the machine, Docker starts all containers at once, and the server must find it at its start.
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
from kvscope.inject.published import free_port, ports_of_the_host
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


def inject(root: Node, edit: Editor, wish: Wish, report: Report) -> None:
    """Observe each service that runs a server; further ones take further ports."""
    services = mapping(plain(root).get("services"))
    taken = ports_of_the_host(services)
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
            user = _user(found, wish)
            port = free_port(wish.port, taken)
            _observe(found, edit)
        except LeftAloneError as error:
            edit.back_to(checkpoint)
            report.left(name, error)
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
        report.left("all services", error)
        return
    for found, port in observed:
        page = f"page at http://127.0.0.1:{port}/metrics"
        report.did(found.name, f"observed ({NAMES[found.server.kind]}): {page}")
        url, remark = _page(found)
        if url is None:
            report.note(found.name, remark)
        if found.content.get("env_file"):
            report.note(
                found.name,
                "it has an env_file: PYTHONPATH there no longer counts, and if VLLM_PLUGINS or "
                f"SGLANG_PLUGINS is there, add {PLUGIN} to it",
            )


def remove(root: Node, edit: Editor, report: Report) -> None:
    """Take observer and sidecar off each service."""
    services = [name for name, _ in _services(root)]
    end = f"-{OBSERVER}"
    observed = [name.removesuffix(end) for name in services if name.endswith(end)]
    ours = {f"{name}-{part}" for name in observed for part in (OBSERVER, SIDECAR, SOCKETS)}

    def is_ours(part: Any) -> bool:
        """Whether it is an entry with one of our names, or a mount of such a volume."""
        source = part.get("source") if isinstance(part, Mapping) else part
        return (part[0] if isinstance(part, tuple) else str(source).partition(":")[0]) in ours

    for name, node in _services(root):
        if name in ours:
            continue
        with report.removal(name, edit):
            restore_environment(node, "environment", edit)
            edit.drop(node, "volumes", is_ours)
            edit.drop(node, "depends_on", is_ours)
    for key in ("services", "volumes"):
        edit.drop(root, key, is_ours)


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
    write = f"kvscope observer {PLUGIN_FOLDER} >/dev/null && touch {_WRITTEN}"
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
