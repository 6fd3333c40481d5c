"""Observes the servers in the pods of a Kubernetes object, and takes everything off again."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvscope.inject.edit import Editor
from kvscope.inject.environment import extend_environment, restore_environment
from kvscope.inject.pod import (
    DEFAULT_BLOCKS,
    EXPORTER_IMAGE,
    KEY,
    LABEL,
    OBSERVED,
    OBSERVER,
    PORT,
    SIDECAR,
    SOCKETS,
    SOCKETS_FOLDER,
    Watch,
    containers,
    server_mounts,
    volumes,
)
from kvscope.inject.report import Place, Report, Turn
from kvscope.inject.servers import NAMES, Server, mentioned_server, server_in
from kvscope.inject.tree import (
    LeftAloneError,
    Node,
    child,
    entry,
    is_list,
    is_mapping,
    mapping,
    mappings,
    plain,
)
from kvscope.inject.users import shared_user
from kvscope.inject.workloads import WITHOUT_PLACE, Pod, pods_of
from kvscope.run.plugin_folder import PLUGIN
from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE

_OURS = (OBSERVER, SIDECAR, SOCKETS, KEY)
_PLAIN_JOBS = ("Job", "CronJob")
_FIXED = {
    "Pod": "a Pod that exists cannot be changed in place: kubectl replace --force",
    "Job": "a Job that exists cannot be changed: delete it, and create it from its own manifest, "
    "not from what kubectl get gives",
}
"""Advice for kinds whose pods `kubectl apply` cannot change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The choices of the operator."""

    image: str = EXPORTER_IMAGE
    port: int = PORT
    container: str | None = None
    """Container to take for the server, where it is not recognised or there are several."""
    user: int | None = None
    is_user_assigned: bool = False
    """Whether the cluster assigns one user to all containers of a pod."""
    key: tuple[str, str] | None = None
    is_native: bool = True
    is_fail_open: bool = False
    """Whether servers start even where the image of observer and sidecar cannot be pulled."""
    blocks: int = DEFAULT_BLOCKS
    cpu_limit: str | None = None
    """The limit of each of our containers, as Kubernetes writes it."""


@dataclass(frozen=True, slots=True)
class _Found:
    node: Node
    name: str
    content: Mapping[str, Any]
    server: Server


def inject(
    root: Node, kind: str, name: str, edit: Editor, wish: Wish, report: Report, turn: Turn
) -> None:
    """Observe the server of each pod of an object."""
    labelled: set[int] = set()
    pods = list(pods_of(root, kind))
    if kind in WITHOUT_PLACE:
        report.note(name, f"left alone: {WITHOUT_PLACE[kind]}")
        return
    for number, pod in enumerate(pods):
        place = turn.place(number)
        if report.keeps(turn, place, name):
            continue
        checkpoint = edit.checkpoint()
        found: _Found | None = None
        try:
            found = _server_of(pod, wish)
            if found is None:
                _note_unrecognised(pod, name, wish, report)
                continue
            watch = _watch(pod, found, wish)
            _observe(pod, found, watch, edit, labelled)
        except LeftAloneError as error:
            edit.back_to(checkpoint)
            report.left(name, error, place)
            continue
        what = f"container {found.name} ({NAMES[found.server.kind]}, {found.server.remark})"
        word = turn.words.get(place, "observed")
        report.did(name, f"{word}: {what}, page at port {watch.port}", place)
        report.hints[_hint(watch)] = None
        for remark in _remarks(pod, found, watch):
            report.note(name, remark)
        if kind in _FIXED:
            report.note(name, _FIXED[kind])
    if not pods:
        _note_unknown(root, kind, name, report)


def observed(root: Node, kind: str) -> dict[int, tuple[list[str], Mapping[str, Any]]]:
    """The pods that have something of ours, by number: names of their containers, and our parts."""
    found: dict[int, tuple[list[str], Mapping[str, Any]]] = {}
    for number, pod in enumerate(pods_of(root, kind)):
        spec, labelled = plain(pod.spec), plain(pod.labelled)
        inner = {name: one for _, name, one in _containers(pod) if name not in _OURS}
        variables = [one for content in inner.values() for one in mappings(content.get("env"))]
        parts: dict[str, Any] = {
            f"{key}/{part['name']}": part
            for key in ("initContainers", "containers", "volumes")
            for part in mappings(spec.get(key))
            if _is_ours(part)
        }
        if not parts and not any(one.get("value") == SOCKETS_FOLDER for one in variables):
            continue
        for key in ("env", "volumeMounts"):
            parts[key] = [[name, content.get(key)] for name, content in inner.items()]
        labels = mapping(labelled.get("metadata")) if pod.has_metadata else labelled
        parts["labels"] = mapping(mapping(labels).get("labels")).get(LABEL)
        found[number] = [*inner], parts
    return found


def remove(
    root: Node,
    kind: str,
    name: str,
    edit: Editor,
    report: Report,
    turn: Turn,
    only: Container[Place] | None = None,
) -> None:
    """Take observer and sidecar off each pod of an object. only: no others."""
    pods = list(pods_of(root, kind))
    for number, pod in enumerate(pods):
        place = turn.place(number)
        if only is not None and place not in only:
            continue
        checkpoint = edit.checkpoint()
        with report.removal(name, edit, place):
            _remove(pod, edit)
            if kind == "Job":
                _remove_copied_label(root, edit)
        if kind in _FIXED and edit.checkpoint() > checkpoint:
            report.note(name, _FIXED[kind])
    if not pods:
        report.others.append(name)


def _containers(pod: Pod) -> Iterator[tuple[Node, str, Mapping[str, Any]]]:
    """The nodes, names and contents; KServe's `model` is one as well."""
    for key in ("containers", "model"):
        inner = entry(pod.spec, key)
        if inner is None:
            continue
        nodes = inner[1].value if is_list(inner[1]) else [inner[1]]
        for node in nodes:
            content = plain(node)
            if isinstance(content, Mapping):
                yield node, str(content.get("name") or key), content


def _server_of(pod: Pod, wish: Wish) -> _Found | None:
    """The server's container. Raises LeftAloneError."""
    found = []
    for node, name, content in _containers(pod):
        if name in _OURS or (wish.container is not None and name != wish.container):
            continue
        words, image = _words(content), str(content.get("image") or "")
        is_named = wish.container is not None or _is_servers(pod, name, content)
        # KubeRay starts Ray, whatever the image's entry point is.
        has_command = bool(content.get("command")) or pod.kind.startswith("Ray")
        server = server_in(words, image, has_command=has_command, is_named=is_named)
        if server is not None:
            found.append(_Found(node, name, content, server))
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise LeftAloneError(f"it has several servers ({names}): choose one with --container")
    return found[0] if found else None


def _words(content: Mapping[str, Any]) -> list[str]:
    given = [content.get(key) for key in ("command", "args")]
    return [str(word) for words in given if isinstance(words, list) for word in words]


def _is_servers(pod: Pod, name: str, content: Mapping[str, Any]) -> bool:
    """Whether a container without a command of its own is KServe's for a vLLM."""
    if pod.kind.startswith("LLM"):
        return name == "main" and not pod.may_lack_scheduler
    return str(mapping(content.get("modelFormat")).get("name")).lower() == "vllm"


def _note_unrecognised(pod: Pod, name: str, wish: Wish, report: Report) -> None:
    names = [one for _, one, _ in _containers(pod) if one not in _OURS]
    if wish.container not in (None, *names):
        report.note(name, f"has no container {wish.container}, but {', '.join(names)}")
        report.containers += names
        return
    if wish.container is not None or not pod.may_lack_scheduler:
        report.unrecognised(f"{name} (container {', '.join(names)})", names)
        return
    report.note(
        name,
        f"container {', '.join(names)} left alone: its command starts no vLLM itself, and it may "
        "never get one; --container NAME takes one in which Ray or a script starts workers",
    )


def _note_unknown(root: Node, kind: str, name: str, report: Report) -> None:
    """An object without a pod that we know is one to mention if it has a server all the same."""
    content = plain(root)
    server = mentioned_server(content)
    if server is None:
        report.others.append(name)
        return
    report.left(
        name,
        f"it runs a vLLM or SGLang ({server}), but this command does not know the pods of a {kind} "
        f"of {content.get('apiVersion')}. docs/guides/kubernetes.md has the kinds that it knows; "
        "kvscope run, in the server's own container, works in all",
    )


def _watch(pod: Pod, found: _Found, wish: Wish) -> Watch:
    """Raises LeftAloneError."""
    user = shared_user(
        found.content,
        found.name,
        plain(pod.spec),
        wish=wish.user,
        is_assigned=wish.is_user_assigned,
    )
    ports = {
        str(port.get("containerPort"))
        for one in mappings(plain(pod.spec).get("containers"))
        for port in mappings(one.get("ports"))
    }
    if str(wish.port) in ports:
        raise LeftAloneError(f"port {wish.port} is taken: choose another with --port")
    variables = {str(one.get("name")) for one in mappings(found.content.get("env"))}
    if DIRECTORY_VARIABLE in variables:
        raise LeftAloneError(
            f"container {found.name} sets {DIRECTORY_VARIABLE}, so it has an observer that this "
            "command did not add: take that off first"
        )
    if not wish.is_native or wish.is_fail_open:
        ends = plain(pod.spec).get("restartPolicy") not in (None, "Always")
        if ends or pod.kind in _PLAIN_JOBS:
            option = "--fail-open" if wish.is_fail_open else "--ordinary-sidecar"
            raise LeftAloneError(
                f"with an ordinary container beside its server the pod never ends: leave out "
                f"{option}"
            )
    return Watch(
        server=found.server.kind,
        url=found.server.url,
        image=wish.image,
        port=wish.port,
        user=user.number,
        is_non_root=user.is_non_root,
        key=wish.key,
        is_native=wish.is_native,
        is_fail_open=wish.is_fail_open,
        blocks=wish.blocks,
        cpu_limit=wish.cpu_limit,
    )


def _observe(pod: Pod, found: _Found, watch: Watch, edit: Editor, labelled: set[int]) -> None:
    """Raises LeftAloneError."""
    edit.own(pod.spec, found.node)
    edit.indent_like(pod.spec, "containers")
    extend_environment(
        found.node, "env", edit, may_be_from_elsewhere=bool(found.content.get("envFrom"))
    )
    edit.extend(found.node, "volumeMounts", server_mounts(watch.is_fail_open))
    for key, added in zip(("initContainers", "containers"), containers(watch), strict=True):
        if added:
            edit.extend(pod.spec, key, added)
    edit.extend(pod.spec, "volumes", volumes(watch))
    if id(pod.labelled) not in labelled:
        _label(pod, edit)
        labelled.add(id(pod.labelled))


def _label(pod: Pod, edit: Editor) -> None:
    """Raises LeftAloneError."""
    holder = pod.labelled
    edit.own(holder)
    if pod.has_metadata:
        metadata = child(holder, "metadata")
        if metadata is None:
            edit.set(holder, "metadata", {"labels": {LABEL: OBSERVED}})
            return
        if not is_mapping(metadata):
            edit.put(holder, "metadata", {"labels": {LABEL: OBSERVED}})
            return
        holder = metadata
    labels = mapping(plain(holder).get("labels"))
    if LABEL not in labels:
        edit.put(holder, "labels", {LABEL: OBSERVED})
    elif labels[LABEL] != OBSERVED:
        raise LeftAloneError(
            f"its label {LABEL} is {labels[LABEL]!r}: the monitor needs {OBSERVED}"
        )


def _hint(watch: Watch) -> str:
    if watch.is_fail_open:
        return (
            f"while a node cannot pull {watch.image} (ImagePullBackOff), a server there starts "
            "unobserved, and its pod is not ready: no Service sends it requests"
        )
    return (
        f"while a node cannot pull {watch.image} (ImagePullBackOff), a pod there does not start "
        "its server: try one replica first; with --fail-open, servers start without it"
    )


def _remarks(pod: Pod, found: _Found, watch: Watch) -> Iterator[str]:
    """Circumstances that need a person's eye."""
    if watch.user == 0:
        yield "it runs as root, as its image does, so observer and sidecar do, too"
    for source in mappings(found.content.get("envFrom")):
        reference = mapping(source.get("configMapRef") or source.get("secretRef"))
        yield (
            f"it has variables from {reference.get('name')}: if VLLM_PLUGINS or SGLANG_PLUGINS is "
            f"among them, add {PLUGIN} to it there"
        )
    if plain(pod.spec).get("hostNetwork") == "true":
        yield f"it is in the host's network, where port {watch.port} is open: see --key-secret"
    if pod.kind.startswith("Ray"):
        yield "one vLLM in each pod is observed: docs/guides/ray.md has what several need"


def _remove(pod: Pod, edit: Editor) -> None:
    """Raises LeftAloneError."""
    for node, _, _ in _containers(pod):
        if not is_mapping(node):
            continue
        restore_environment(node, "env", edit)
        edit.drop(node, "volumeMounts", _is_ours)
    for key in ("initContainers", "containers", "volumes"):
        edit.drop(pod.spec, key, _is_ours)
    holder = pod.labelled
    if not pod.has_metadata:
        edit.drop(holder, "labels", _is_label)
        return
    metadata = entry(holder, "metadata")
    if metadata is not None and edit.drop(metadata[1], "labels", _is_label):
        edit.drop(holder, "metadata", lambda pair: pair[0] == "labels")


def _remove_copied_label(job: Node, edit: Editor) -> None:
    """A cluster gives a Job without labels those of its template. Raises LeftAloneError."""
    metadata = entry(job, "metadata")
    if metadata is not None and "uid" in mapping(plain(metadata[1])):
        edit.drop(metadata[1], "labels", _is_label)


def _is_ours(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("name") in _OURS


def _is_label(pair: Any) -> bool:
    return bool(pair == (LABEL, OBSERVED))
