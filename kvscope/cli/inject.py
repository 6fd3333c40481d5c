"""`kvscope inject`: manifests and Compose files whose servers are observed."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.inject.options import PodOptions
from kvscope.inject.pod import EXPORTER_IMAGE
from kvscope.options.generated import with_options
from kvscope.output import fail
from kvscope_engine.option import option
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.inject.kubernetes import Wish

_STANDARD_INPUT = "-"
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
    path: str | None = option(
        None,
        "Place of the pods' templates or specs, if they are not found or not all are meant: "
        "spec/roles/*/template. * is every element.",
        "PATH",
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

    pods: PodOptions = PodOptions()

    def wish(self) -> "Wish":
        """Raises ValueError for what cannot be meant."""
        pods = self.pods
        if self.remove:
            pods = replace(pods, exporter_image=EXPORTER_IMAGE)
        return pods.wish(
            path=self.path, is_native=not self.ordinary_sidecar, is_fail_open=self.fail_open
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
    remove = options.remove
    try:
        wish = options.wish()
    except ValueError as error:
        raise fail(error) from None
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
