"""Pods that are left alone: the reasons, and what works instead."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvscope.inject.pod import KEY, OBSERVER, SIDECAR, SOCKETS
from kvscope.inject.report import Report
from kvscope.inject.servers import launcher, mentioned_server
from kvscope.inject.tree import LeftAloneError, Node, entry, is_list, plain
from kvscope.inject.workloads import Pod, pods_of

OURS = (OBSERVER, SIDECAR, SOCKETS, KEY)
"""Names of our containers and volumes."""


def containers_in(pod: Pod) -> Iterator[tuple[Node, str, Mapping[str, Any]]]:
    """The nodes, names and contents."""
    for key in dict.fromkeys(("containers", pod.server)):
        inner = entry(pod.spec, key)
        if inner is None:
            continue
        nodes = inner[1].value if is_list(inner[1]) else [inner[1]]
        for node in nodes:
            content = plain(node)
            if isinstance(content, Mapping):
                yield node, str(content.get("name") or key), content


def words_of(content: Mapping[str, Any]) -> list[str]:
    given = [content.get(key) for key in ("command", "args")]
    return [str(word) for words in given if isinstance(words, list) for word in words]


def check_place(pod: Pod, without_place: str | None, *, is_named: bool) -> None:
    """Raises LeftAloneError if it is not known to take what would be added."""
    if without_place:
        raise LeftAloneError(without_place)
    if pod.labelled is None and not is_named:
        raise LeftAloneError(
            f"its pod's spec, at {pod.path}, is in no template with metadata, and not every kind "
            f"takes init containers there: if kubectl explain shows that a {pod.kind} does, name "
            f"it with --path {pod.path}"
        )


def note_unrecognised(pod: Pod, name: str, wanted: str | None, report: Report) -> None:
    """A pod without a server. wanted: the container that was asked for."""
    inner = [one for one in containers_in(pod) if one[1] not in OURS]
    names = [one for _, one, _ in inner]
    if wanted not in (None, *names):
        report.note(name, f"has no container {wanted}, but {', '.join(names)}")
        report.containers += names
        return
    for _, container, content in inner:
        if reason := launcher(words_of(content), str(content.get("image") or "")):
            report.left(name, f"container {container}: {reason}, name it: --container {container}")
            return
    if wanted is not None or not pod.may_lack_scheduler:
        report.unrecognised(f"{name} (container {', '.join(names)})", names)
        return
    report.note(
        name,
        f"container {', '.join(names)} left alone: its command starts no vLLM itself, and it may "
        "never get one; --container NAME takes one in which Ray or a script starts workers",
    )


def note_unknown(root: Node, kind: str, name: str, path: str | None, report: Report) -> None:
    """An object without a pod's spec is one to mention if it has a server all the same."""
    paths = ", ".join(pod.path for pod in pods_of(root, kind)) if path is not None else ""
    if paths:
        report.note(name, f"has no pod's spec at {path}, but at {paths}")
        return
    content = plain(root)
    server = mentioned_server(content) if content.get("apiVersion") else None
    if server is None:
        report.others.append(name)
        return
    report.left(
        name,
        f"it runs a vLLM or SGLang ({server}), but has no pod's spec: the controller of a {kind} "
        f"of {content.get('apiVersion')} makes its pods. kvscope run, in the server's own "
        "container, works there",
    )
