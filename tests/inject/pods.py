"""The pods of injected manifests, found again by what was added to them."""

from collections.abc import Iterator
from typing import Any

from kvscope.inject.pod import SIDECAR, SOCKETS
from tests.inject.run import loaded


def specs(content: Any) -> Iterator[Any]:
    """Everything that has containers."""
    if isinstance(content, dict):
        if "initContainers" in content or "containers" in content:
            yield content
        for value in content.values():
            yield from specs(value)
    elif isinstance(content, list):
        for value in content:
            yield from specs(value)


def observed(content: Any) -> list[Any]:
    """The pods with a sidecar, in an object, in several, or in the text of a stream of them."""
    pods = specs(loaded(content) if isinstance(content, str) else content)
    return [pod for pod in pods if SIDECAR in {one["name"] for one in containers(pod)}]


def containers(pod: Any) -> list[Any]:
    """All of them, in the order in which they start."""
    return [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]


def added_to(pod: Any, name: str) -> Any:
    """The observer or the sidecar."""
    (found,) = (one for one in containers(pod) if one["name"] == name)
    return found


def server_of(pod: Any) -> Any:
    """The container that has the sockets."""
    (found,) = (
        one
        for one in [
            *(pod.get("containers") or ()),
            *(pod[key] for key in ("model", "runner") if key in pod),
        ]
        if one.get("name") != SIDECAR
        if SOCKETS in {mount["name"] for mount in one.get("volumeMounts") or ()}
    )
    return found


def environment(container: Any) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}
