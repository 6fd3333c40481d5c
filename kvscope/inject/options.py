"""Options about the observer and the sidecar that are added to a pod: of `inject` and `webhook`."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvscope.inject.pod import DEFAULT_BLOCKS, PORT, cores, cpu_request
from kvscope_engine.option import option
from kvscope_events.limits import MAX_BLOCKS

if TYPE_CHECKING:
    from kvscope.inject.kubernetes import Wish

_ASSIGNED = "assigned"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SECRET = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_KEY = re.compile(r"(?!\.\.?\Z)[-._a-zA-Z0-9]{1,253}")
"""Names that an API server accepts. It would refuse a whole pod for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """The operator's choices for one pod, or for all; checked when the `wish` is made."""

    exporter_image: str | None = option(
        None,
        "Image of the observer and the sidecar, which every node has to be able to pull. Needed, "
        "except with --remove: none is published.",
        "IMAGE",
    )
    container: str | None = option(
        None,
        "Container of the server, if it is not recognised or a pod has several. In a Compose file: "
        "the service.",
        "NAME",
    )
    user: str | None = option(
        None,
        "User of the server, if neither the manifest says nor its image is known; "
        f"{_ASSIGNED}: the cluster assigns one to all containers (OpenShift).",
        "UID",
    )
    port: int = option(PORT, "Port of the sidecar's page.", "PORT", least=1, most=65535)
    key_secret: str | None = option(
        None,
        "Secret with the bearer token that the page asks for. Default of KEY: token.",
        "NAME[/KEY]",
    )
    blocks: int = option(
        DEFAULT_BLOCKS,
        "Blocks of the server's pool, for the sidecar's resources; it logs them as it starts.",
        "N",
        least=1,
        most=MAX_BLOCKS,
    )
    cpu_limit: str | None = option(
        None,
        "Limit of CPU of each container that is added to a pod, where a ResourceQuota counts "
        "limits.cpu: 1, 500m. Default: no limit.",
        "CPU",
    )

    def wish(
        self, *, path: str | None = None, is_native: bool = True, is_fail_open: bool = False
    ) -> "Wish":
        """Raises ValueError for what cannot be meant, and without an image."""
        from kvscope.inject.kubernetes import Wish

        return Wish(
            image=_image(self.exporter_image),
            port=self.port,
            path=path and path.strip("/"),
            container=self.container,
            user=_user(self.user),
            is_user_assigned=self.user == _ASSIGNED,
            key=_key(self.key_secret),
            is_native=is_native,
            is_fail_open=is_fail_open,
            blocks=self.blocks,
            cpu_limit=_cpu_limit(self.cpu_limit, self.blocks),
        )


def _image(text: str | None) -> str:
    """Raises ValueError."""
    if text is None:
        raise ValueError(
            "--exporter-image is needed: no image of kvscope is published. Build one (docker build "
            "--target exporter -t IMAGE .), push it to a registry that your nodes pull from, and "
            "name it: --exporter-image IMAGE"
        )
    if not text or re.search(r"\s", text):
        raise ValueError(f"--exporter-image {text!r}: expected the name of an image")
    return text


def _user(text: str | None) -> int | None:
    """Raises ValueError."""
    if text is None or text == _ASSIGNED:
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 31):
        raise ValueError(f"--user {text!r}: expected a number, or {_ASSIGNED}")
    return int(text)


def _cpu_limit(text: str | None, blocks: int) -> str | None:
    """Raises ValueError."""
    if text is None:
        return None
    limit, request = cores(text), cpu_request(blocks)
    if limit is None:
        raise ValueError(f"--cpu-limit {text!r}: expected an amount of CPU, such as 1, 1.5 or 500m")
    least = cores(request)
    assert least is not None
    if limit < least:
        raise ValueError(
            f"--cpu-limit {text}: below the {request} that the sidecar requests for {blocks} blocks"
        )
    return text


def _key(text: str | None) -> tuple[str, str] | None:
    """Raises ValueError."""
    if text is None:
        return None
    name, _, key = text.partition("/")
    key = key or "token"
    if not (_SECRET.fullmatch(name) and _KEY.fullmatch(key)):
        raise ValueError(f"--key-secret {text!r}: expected NAME or NAME/KEY of a Secret")
    return name, key
