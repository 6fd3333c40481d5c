"""The user of a server, whom its observer and sidecar share: sockets are private to that user."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvscope.inject.servers import name_of
from kvscope.inject.tree import LeftAloneError, mapping

_USERS = {"vllm-openai": 0, "vllm-openai-cpu": 0, "sglang": 0, "llm-d-cuda": 2000}
"""Users of images whose manifests seldom name one."""
_TRUE = ("true", "yes", "on", "y")
_REMEDY = "give it with --user UID (docker inspect --format '{{.Config.User}}' IMAGE)"


@dataclass(frozen=True, slots=True)
class User:
    """The words on users in the security context of our containers."""

    number: int | None
    """None: the pod or the cluster sets one for all containers."""
    is_non_root: bool | None
    """None: nothing is said, and the pod's own word holds."""


def user_of(image: str) -> int | None:
    """The user of an image; None: not known."""
    return _USERS.get(name_of(image))


def shared_user(
    container: Mapping[str, Any],
    name: str,
    pod: Mapping[str, Any],
    *,
    wish: int | None,
    is_assigned: bool,
) -> User:
    """The user of a server's container in a pod's spec.

    wish: the operator's, if the manifest names none; is_assigned: the cluster assigns one to all
    containers of a pod. Raises LeftAloneError.
    """
    own, of_pod = (mapping(part.get("securityContext")) for part in (container, pod))
    pods_is_non_root = _is_non_root(of_pod)
    word = _is_non_root(own)
    is_non_root = pods_is_non_root if word is None else word
    number = _runs_as(own)
    if number is None:
        common = _runs_as(of_pod)
        if common is not None or is_assigned:
            return User(None, True if common or is_non_root else None)
        number = user_of(str(container.get("image") or "")) if wish is None else wish
        if number is None:
            raise LeftAloneError(
                f"the user of container {name} is in its image, and sockets are private to it: "
                f"{_REMEDY}"
            )
        if number == 0 and is_non_root:
            raise LeftAloneError(
                f"container {name} must not run as root (runAsNonRoot), and the user of its image "
                f"is not known: {_REMEDY}"
            )
    if number == 0:
        # The pod's word would keep ours from starting as the server's user.
        return User(0, False if pods_is_non_root and not is_non_root else None)
    return User(number, True)


def _runs_as(context: Mapping[str, Any]) -> int | None:
    """Raises LeftAloneError."""
    user = context.get("runAsUser")
    if user is None:
        return None
    if not str(user).isdecimal():
        raise LeftAloneError(f"its runAsUser is not a number: {user!r}")
    return int(user)


def _is_non_root(context: Mapping[str, Any]) -> bool | None:
    """None: it says nothing."""
    word = context.get("runAsNonRoot")
    return None if word is None else str(word).lower() in _TRUE
