"""Observes the servers in the pods of a Kubernetes object, and takes everything off again."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvscope.inject.edit import Editor
from kvscope.inject.environment import extend_environment, restore_environment
from kvscope.inject.left_alone import (
    OURS,
    check_place,
    containers_in,
    note_unknown,
    note_unrecognised,
    words_of,
)
from kvscope.inject.pod import (
    DEFAULT_BLOCKS,
    EXPORTER_IMAGE,
    LABEL,
    OBSERVED,
    PORT,
    SOCKETS_FOLDER,
    Watch,
    containers,
    server_mounts,
    volumes,
)
from kvscope.inject.report import Place, Report, Turn
from kvscope.inject.servers import NAMES, Server, server_in
from kvscope.inject.tree import (
    LeftAloneError,
    Node,
    child,
    entry,
    is_mapping,
    mapping,
    mappings,
    plain,
)
from kvscope.inject.users import shared_user
from kvscope.inject.workloads import WITHOUT_PLACE, Pod, chosen_pods, group_of, pods_of
from kvscope.run.plugin_folder import PLUGIN
from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE

_FIXED = {
    ("", "Pod"): "a Pod that exists cannot be changed in place: kubectl replace --force",
    ("batch", "Job"): "a Job that exists cannot be changed: delete it, and create it from its own "
    "manifest, not from what kubectl get gives",
}
"""Advice for kinds whose pods `kubectl apply` cannot change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The choices of the operator."""

    image: str = EXPORTER_IMAGE
    port: int = PORT
    path: str | None = None
    """Place of the templates or specs of pods to take, whatever the kind of object."""
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
    pods = chosen_pods(root, kind, wish.path)
    group = group_of(root)
    without_place = None if wish.path else WITHOUT_PLACE.get((group, kind))
    for number, pod in pods.items():
        place = turn.place(number)
        if report.keeps(turn, place, name):
            continue
        checkpoint = edit.checkpoint()
        found: _Found | None = None
        try:
            found = _server_of(pod, wish)
            if found is None:
                note_unrecognised(pod, name, wish.container, report)
                continue
            check_place(pod, without_place, is_named=wish.path is not None)
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
        if (group, kind) in _FIXED:
            report.note(name, _FIXED[group, kind])
    if not pods:
        note_unknown(root, kind, name, wish.path, report)


def observed(root: Node, kind: str) -> dict[int, tuple[list[str], Mapping[str, Any]]]:
    """The pods that have something of ours, by number: names of their containers, and our parts."""
    found: dict[int, tuple[list[str], Mapping[str, Any]]] = {}
    for number, pod in enumerate(pods_of(root, kind)):
        spec = plain(pod.spec)
        inner = {name: one for _, name, one in containers_in(pod) if name not in OURS}
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
        holder = {} if pod.labelled is None else mapping(plain(pod.labelled))
        labels = mapping(holder.get(pod.metadata)) if pod.metadata else holder
        parts["labels"] = mapping(labels.get("labels")).get(LABEL)
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
        fixed = _FIXED.get((pod.group, kind))
        if fixed and edit.checkpoint() > checkpoint:
            report.note(name, fixed)
    if not pods:
        report.others.append(name)


def _server_of(pod: Pod, wish: Wish) -> _Found | None:
    """The server's container. Raises LeftAloneError."""
    found = []
    for node, name, content in containers_in(pod):
        if name in OURS or (wish.container is not None and name != wish.container):
            continue
        words, image = words_of(content), str(content.get("image") or "")
        is_named = wish.container is not None or _is_servers(pod, name, content)
        has_command = bool(content.get("command")) or pod.is_rays
        server = server_in(words, image, has_command=has_command, is_named=is_named)
        if server is not None:
            found.append(_Found(node, name, content, server))
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise LeftAloneError(f"it has several servers ({names}): choose one with --container")
    return found[0] if found else None


def _is_servers(pod: Pod, name: str, content: Mapping[str, Any]) -> bool:
    """Whether a container without a command of its own is KServe's for a vLLM."""
    if pod.is_llms:
        return name == "main" and not pod.may_lack_scheduler
    return str(mapping(content.get("modelFormat")).get("name")).lower() == "vllm"


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
        if ends or pod.is_job:
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
    if pod.labelled is not None and id(pod.labelled) not in labelled:
        _label(pod.labelled, pod.metadata, edit)
        labelled.add(id(pod.labelled))


def _label(holder: Node, key: str, edit: Editor) -> None:
    """key: that of the metadata; empty: labels are in the holder itself. Raises LeftAloneError."""
    edit.own(holder)
    if key:
        metadata = child(holder, key)
        if metadata is None:
            edit.set(holder, key, {"labels": {LABEL: OBSERVED}})
            return
        if not is_mapping(metadata):
            edit.put(holder, key, {"labels": {LABEL: OBSERVED}})
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
    if pod.labelled is None:
        yield (
            f"where a {pod.kind} has its pods' labels is not known: give them {LABEL}: {OBSERVED}, "
            "by which the PodMonitor selects"
        )
    if pod.is_rays:
        yield "one vLLM in each pod is observed: docs/attach/ray.md has what several need"


def _remove(pod: Pod, edit: Editor) -> None:
    """Raises LeftAloneError."""
    for node, _, _ in containers_in(pod):
        if not is_mapping(node):
            continue
        restore_environment(node, "env", edit)
        edit.drop(node, "volumeMounts", _is_ours)
    for key in ("initContainers", "containers", "volumes"):
        edit.drop(pod.spec, key, _is_ours)
    if not pod.metadata:
        edit.drop(pod.labelled, "labels", _is_label)
        return
    metadata = entry(pod.labelled, pod.metadata)
    if metadata is not None and edit.drop(metadata[1], "labels", _is_label):
        edit.drop(pod.labelled, pod.metadata, lambda pair: pair[0] == "labels")


def _remove_copied_label(job: Node, edit: Editor) -> None:
    """A cluster gives a Job without labels those of its template. Raises LeftAloneError."""
    metadata = entry(job, "metadata")
    if metadata is not None and "uid" in mapping(plain(metadata[1])):
        edit.drop(metadata[1], "labels", _is_label)


def _is_ours(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("name") in OURS


def _is_label(pair: Any) -> bool:
    return bool(pair == (LABEL, OBSERVED))
