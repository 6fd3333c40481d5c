"""`kvscope inject`: manifests and Compose files whose servers are observed."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.inject.pod import DEFAULT_BLOCKS, EXPORTER_IMAGE, PORT, cores, cpu_request
from kvscope.options.generated import with_options
from kvscope.output import fail
from kvscope_engine.option import option
from kvscope_events.limits import MAX_BLOCKS
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.inject.kubernetes import Wish

_STANDARD_INPUT = "-"
_ASSIGNED = "assigned"
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectOptions:
    """The observer and sidecar to add, or their removal."""

    remove: bool = option(
        False, "Take everything off that this command has added.", flags=("--remove",)
    )
    patch: bool = option(
        False,
        "Write what is added as strategic-merge patches, for kustomize and for Flux's "
        "postRenderers.",
        flags=("--patch",),
    )
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
    path: str | None = option(
        None,
        "Place of the pods' templates or specs, if they are not found or not all are meant: "
        "spec/roles/*/template. * is every element.",
        "PATH",
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
    ordinary_sidecar: bool = option(
        False,
        "An ordinary container, for Kubernetes before 1.29.",
        flags=("--ordinary-sidecar",),
    )
    fail_open: bool = option(
        False,
        "Let servers start, unobserved, where observer or sidecar cannot: both are ordinary "
        "containers behind the server's, which waits for neither.",
        flags=("--fail-open",),
    )

    def wish(self) -> "Wish":
        """Raises typer.Exit(2) for what cannot be meant."""
        from kvscope.inject.kubernetes import Wish

        return Wish(
            image=EXPORTER_IMAGE if self.remove else _image(self.exporter_image),
            port=self.port,
            path=self.path and self.path.strip("/"),
            container=self.container,
            user=_user(self.user),
            is_user_assigned=self.user == _ASSIGNED,
            key=_key(self.key_secret),
            is_native=not self.ordinary_sidecar,
            is_fail_open=self.fail_open,
            blocks=self.blocks,
            cpu_limit=_cpu_limit(self.cpu_limit, self.blocks),
        )


@with_options
def inject(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Manifests or a Compose file; -: standard input."),
    ] = None,
    filename: Annotated[
        str | None,
        typer.Option("--filename", "-f", metavar="FILE", help="The same, as kubectl has it."),
    ] = None,
    options: InjectOptions = InjectOptions(),
) -> None:
    """Add observer and sidecar to the vLLMs and SGLangs of a file.

    Reads Kubernetes manifests (any kind with a pod's template in it, KServe's and OME's kinds,
    rendered charts) or a Compose file, and writes the same text with two containers, volumes,
    variables and a label added. Comments, order and quotes stay. Servers
    that are observed already are updated to the options given now. Standard error says what was
    changed, what was not, and why.

    By default a pod starts its server only once observer and sidecar have started. If their image
    cannot be pulled (ImagePullBackOff), the server does not start. With --fail-open it starts
    unobserved, but its pod is not ready, and gets no requests through a Service, until the image
    can be pulled.

    Exit status: 0; 1 if no server was found, or one was left alone; 2 if an option is wrong or the
    file cannot be read. Where no server is observed, nothing is written, so that a pipeline applies
    nothing.

    To take it off in a cluster, use kubectl replace: apply merges, and leaves in place what it has
    not put there itself.

    Example: kvscope inject -f vllm.yaml --exporter-image IMAGE | kubectl apply -f -

    Example: kubectl get deploy vllm -o yaml | kvscope inject --remove -f - | kubectl replace -f -

    Example: kvscope inject -f vllm.yaml --exporter-image IMAGE --patch > observed.yaml

    Example: kvscope inject compose.yaml --exporter-image IMAGE > compose.observed.yaml
    """
    from kvscope.inject.document import RefusedError
    from kvscope.inject.patch import patches
    from kvscope.inject.report import Report
    from kvscope.inject.stream import changed

    if (file is None) == (filename is None):
        raise fail("name one file, or - for standard input: kvscope inject -f vllm.yaml")
    if options.patch and options.remove:
        raise fail("--patch adds: take the patch out of the kustomization instead of --remove")
    name = file or filename or _STANDARD_INPUT
    wish, remove = options.wish(), options.remove
    text = _read(name)
    report = Report()
    try:
        if options.patch:
            bare = changed(text, wish, Report(), is_removal=True)
            result = patches(bare, changed(bare, wish, report, is_removal=False))
        else:
            result = changed(text, wish, report, is_removal=remove)
    except RefusedError as error:
        raise fail(f"{name}: {error}") from None
    for line in report.summary(is_removal=remove):
        typer.echo(f"kvscope: {printable(line)}", err=True)
    if report.is_written(remove):
        sys.stdout.buffer.write(result.encode())
        sys.stdout.buffer.flush()
    raise typer.Exit(report.exit_code(remove))


def _read(name: str) -> str:
    """The file's text, line ends as they are. Raises typer.Exit(2)."""
    try:
        if name == _STANDARD_INPUT:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise fail(f"{name}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise fail(f"{name}: larger than {MAX_BYTES >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise fail(f"{name}: not UTF-8 at byte {error.start}") from None


def _image(text: str | None) -> str:
    """Raises typer.Exit(2)."""
    if text is None:
        raise fail(
            "--exporter-image is needed: no image of kvscope is published. Build one (docker build "
            "--target exporter -t IMAGE .), push it to a registry that your nodes pull from, and "
            "name it: --exporter-image IMAGE"
        )
    if not text or re.search(r"\s", text):
        raise fail(f"--exporter-image {text!r}: expected the name of an image")
    return text


def _user(text: str | None) -> int | None:
    """Raises typer.Exit(2)."""
    if text is None or text == _ASSIGNED:
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 31):
        raise fail(f"--user {text!r}: expected a number, or {_ASSIGNED}")
    return int(text)


def _cpu_limit(text: str | None, blocks: int) -> str | None:
    """Raises typer.Exit(2)."""
    if text is None:
        return None
    limit, request = cores(text), cpu_request(blocks)
    if limit is None:
        raise fail(f"--cpu-limit {text!r}: expected an amount of CPU, such as 1, 1.5 or 500m")
    least = cores(request)
    assert least is not None
    if limit < least:
        raise fail(
            f"--cpu-limit {text}: below the {request} that the sidecar requests for {blocks} blocks"
        )
    return text


def _key(text: str | None) -> tuple[str, str] | None:
    """Raises typer.Exit(2)."""
    if text is None:
        return None
    name, _, key = text.partition("/")
    if not name or "/" in key:
        raise fail(f"--key-secret {text!r}: expected NAME or NAME/KEY")
    return name, key or "token"
