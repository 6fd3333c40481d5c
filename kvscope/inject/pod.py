"""The containers, volumes and variables that observe a server in a pod.

One specification for `kvscope inject` and the manifests of deploy/. Code that the server imports
is written by the observer alone, and mounted read-only; the sidecar has the sockets, and no access
to that code.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from kvscope_events import __version__
from kvscope_events.limits import MAX_BLOCKS
from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE
from kvscope_events.vocabulary import ServerKind

Part = dict[str, object]

EXPORTER_IMAGE = f"kvscope-exporter:{__version__}"
"""Name of the image as the Dockerfile's targets are built; no registry has it."""
OBSERVER, SIDECAR, SOCKETS, KEY = "kvscope-observer", "kvscope", "kvscope-sockets", "kvscope-key"
"""Names of the observer and its volume, of the sidecar, and of the volumes of sockets and
key. By these names everything is found again and removed."""
CODE, RUN, KEYS = "/kvscope/observer", "/kvscope/run", "/kvscope/key"
"""Mount points of the three volumes."""
PLUGIN_FOLDER = f"{CODE}/plugin"
SOCKETS_FOLDER = f"{RUN}/sockets"
"""A folder of its own, with mode 0700, in a volume that belongs to root."""
PORT, PORT_NAME = 8010, "kvscope"
LABEL, OBSERVED = "kvscope", "observed"
"""Label of pods with a sidecar, which the PodMonitor selects."""
UNPRIVILEGED: Part = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
VARIABLES = {"PYTHONPATH": PLUGIN_FOLDER, DIRECTORY_VARIABLE: SOCKETS_FOLDER}
"""The environment in which a server loads the observer."""
_STAYS = (
    "trap 'kill $! 2>/dev/null; exit 0' TERM; "
    'kvscope "$@" >/dev/null || echo "kvscope: no observer: the server runs unobserved" >&2; '
    "sleep infinity & wait"
)
_AGAIN = (
    "trap 'kill $!; wait; exit 0' TERM; "
    'while :; do kvscope "$@" & wait $!; '
    'echo "kvscope: the sidecar has ended ($?) and starts again in 10 s" >&2; '
    "sleep 10 & wait $!; done"
)
"""Shell scripts that do not end by themselves: a container that has ended makes its pod unready.
They wait for what runs in the background, since a shell heeds no signal while it runs a command."""


DEFAULT_BLOCKS = 200_000
NEEDS: tuple[tuple[int, str, str, str], ...] = (
    (DEFAULT_BLOCKS, "100m", "512Mi", "1Gi"),
    (1_000_000, "500m", "1536Mi", "2Gi"),
    (MAX_BLOCKS, "1", "4Gi", "6Gi"),
)
"""By the blocks of a server's pool, its engines together: CPU and memory that the sidecar requests,
and its limit of memory. `benchmarks/sidecar_cost.py` measured the first two rows, to which a day's
load adds up to 350 MiB; the last one is four times the second and as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A server, and how its pod is watched."""

    server: ServerKind
    url: str | None = None
    """Base URL of the server's own page; None: not read."""
    image: str = EXPORTER_IMAGE
    port: int = PORT
    user: int | None = None
    """The server's user, since sockets are private to it; None: the pod sets one for all."""
    is_non_root: bool | None = None
    """Whether our containers say that they do not run as root; None: they say nothing."""
    key: tuple[str, str] | None = None
    """Name of a Secret, and its key that holds the bearer token of the sidecar's page."""
    is_native: bool = True
    """An init container that restarts: up before the server, down after it. From 1.29 on."""
    is_fail_open: bool = False
    """Whether the server starts without them: both are ordinary containers, behind it."""
    blocks: int = DEFAULT_BLOCKS
    """Size of the server's pool, at most MAX_BLOCKS."""
    cpu_limit: str | None = None
    """Limit of CPU of each of our containers, at least the sidecar's request; None: no limit."""


def observer(watch: Watch) -> Part:
    """The container that writes what the server loads; the server's image stays as it is."""
    return {
        "name": OBSERVER,
        "image": watch.image,
        **_shell(_STAYS, watch),
        "args": ["observer", "install", PLUGIN_FOLDER],
        "resources": _resources("100m", "128Mi", "256Mi", watch),
        "securityContext": _security(watch),
        "volumeMounts": [{"name": OBSERVER, "mountPath": _code(watch.is_fail_open)}],
    }


def sidecar(watch: Watch) -> Part:
    """Without probes: a hung sidecar is an alert, not a reason to take the server out of
    service."""
    arguments = [
        "sidecar",
        "--host=0.0.0.0",
        f"--port={watch.port}",
        f"--events={watch.server}=ipc://{SOCKETS_FOLDER}/*",
    ]
    if watch.url is not None:  # for latencies and refusals, as clients see them
        arguments.append(f"--url={watch.server}={watch.url}")
    mounts: list[Part] = [{"name": SOCKETS, "mountPath": RUN, "readOnly": True}]
    if watch.key is not None:
        arguments.append(f"--metrics-key-file={KEYS}/{watch.key[1]}")
        mounts.append({"name": KEY, "mountPath": KEYS, "readOnly": True})
    return {
        "name": SIDECAR,
        "image": watch.image,
        **({"restartPolicy": "Always"} if watch.is_native and not watch.is_fail_open else {}),
        **_shell(_AGAIN, watch),
        "args": arguments,
        "ports": [{"name": PORT_NAME, "containerPort": watch.port}],
        "resources": _resources(*_needs(watch.blocks), watch),
        "securityContext": _security(watch),
        "volumeMounts": mounts,
    }


def containers(watch: Watch) -> tuple[list[Part], list[Part]]:
    """Both, as init containers and as ordinary ones.

    A kubelet starts nothing before all init containers, and the ordinary ones in their order,
    whether or not the ones before could be started.
    """
    both = [observer(watch), sidecar(watch)]
    if watch.is_fail_open:
        return [], both
    return (both, []) if watch.is_native else (both[:1], both[1:])


def cpu_request(blocks: int) -> str:
    """The CPU that the sidecar requests, which is never less than the observer's."""
    return _needs(blocks)[0]


def cores(quantity: str) -> Decimal | None:
    """An amount of CPU as Kubernetes writes it (`1.5`, `500m`); None: the text is not one."""
    if re.fullmatch(r"[0-9]{1,6}m", quantity):
        return Decimal(quantity[:-1]) / 1000
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", quantity):  # no finer than a thousandth
        return Decimal(quantity)
    return None


def _needs(blocks: int) -> tuple[str, str, str]:
    _, cpu, memory, limit = next(row for row in NEEDS if blocks <= row[0])
    return cpu, memory, limit


def _resources(cpu: str, memory: str, limit: str, watch: Watch) -> Part:
    of_cpu = {} if watch.cpu_limit is None else {"cpu": watch.cpu_limit}
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {**of_cpu, "memory": limit}}


def variables() -> list[Part]:
    """The server's, as a container lists them."""
    return [{"name": name, "value": value} for name, value in VARIABLES.items()]


def _code(is_fail_open: bool) -> str:
    """Mount point of the volume with the code. A Python never imports from a folder that was
    missing when it first looked, so where the server may be first, the folder is the volume."""
    return PLUGIN_FOLDER if is_fail_open else CODE


def server_mounts(is_fail_open: bool = False) -> list[Part]:
    """The server's."""
    return [
        {"name": OBSERVER, "mountPath": _code(is_fail_open), "readOnly": True},
        {"name": SOCKETS, "mountPath": RUN},
    ]


def volumes(watch: Watch) -> list[Part]:
    """The pod's."""
    found: list[Part] = [
        {"name": OBSERVER, "emptyDir": {"sizeLimit": "16Mi"}},
        {"name": SOCKETS, "emptyDir": {"sizeLimit": "16Mi"}},
    ]
    if watch.key is not None:
        name, key = watch.key
        items = [{"key": key, "path": key}]
        # A kubelet starts nothing in a pod whose Secret is missing, unless it may be.
        optional = {"optional": True} if watch.is_fail_open else {}
        found.append({"name": KEY, "secret": {"secretName": name, "items": items, **optional}})
    return found


def _shell(script: str, watch: Watch) -> Part:
    """The command that gives a script our program's arguments, where one is needed."""
    return {"command": ["sh", "-c", script, SIDECAR]} if watch.is_fail_open else {}


def _security(watch: Watch) -> Part:
    security = {**UNPRIVILEGED, "readOnlyRootFilesystem": True}
    if watch.user is not None:
        security["runAsUser"] = watch.user
    if watch.is_non_root is not None:
        security["runAsNonRoot"] = watch.is_non_root
    return security
