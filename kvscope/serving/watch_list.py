"""The servers that `kvscope sidecar` watches: from a file, which may change, or from options."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kvscope.options.telemetry import COMPAT_HELP, NO_SETS, parse_compat
from kvscope.output import fail
from kvscope_engine.option import option

if TYPE_CHECKING:
    from kvscope_exporter.configuration import SidecarConfig
    from kvscope_exporter.sidecar.sidecar import Reloads, Sidecar

logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchList:
    """The command line's options about servers."""

    PANEL: ClassVar[str] = "Servers"
    events: tuple[str, ...] = option(
        (),
        "Endpoint on which an engine publishes its events: ipc:///DIRECTORY/NAME.sock, "
        "tcp://127.0.0.1:PORT, ipc:///DIRECTORY/* for every socket in a folder, also those that "
        "appear later (quote it). May be repeated; endpoints of one server have the same NAME. "
        "Default NAME: the socket's name, or host and port.",
        "[NAME=]ENDPOINT",
    )
    urls: tuple[str, ...] = option(
        (),
        "Base URL of a server whose own metrics page is read and served under kvscope's names: "
        "http://HOST:PORT of vLLM, SGLang and others. May be repeated.",
        "[NAME=]URL",
        flags=("--url",),
    )
    file: Path | None = option(
        None,
        "YAML file with the servers and how to reach them; SIGHUP reloads it. Instead of --events "
        "and --url.",
        "FILE",
        flags=("--config",),
    )
    compat: str | None = option(None, f"{COMPAT_HELP} Default: {NO_SETS}.", "SETS")
    """None: from the file, or the default."""

    def read(self) -> "SidecarConfig":
        """Raises typer.Exit(2) for anything unusable."""
        from kvscope_exporter.configuration import ConfigurationError

        try:
            wanted = self.read_again()
            self.sets(wanted)
        except (ConfigurationError, ValueError) as error:
            raise fail(error) from None
        return wanted

    def read_again(self) -> "SidecarConfig":
        """Raises ConfigurationError, or ValueError for an option."""
        from kvscope.options.endpoints import servers_of
        from kvscope_exporter.configuration import SidecarConfig, read_configuration

        if self.file is None:
            return SidecarConfig(servers=tuple(servers_of(self.events, self.urls)))
        if self.events or self.urls:
            raise ValueError(
                "--config cannot be combined with --events or --url: write all servers into it"
            )
        return read_configuration(self.file)

    def sets(self, wanted: "SidecarConfig") -> frozenset[str]:
        """Compatibility sets. Raises ValueError."""
        if self.compat is None and wanted.compat is not None:
            return frozenset(wanted.compat)
        return parse_compat(NO_SETS if self.compat is None else self.compat)

    def reload(self, sidecar: "Sidecar", reloads: "Reloads", at_start: "SidecarConfig") -> None:
        """Read the file again; an error in it is logged in one line, and changes nothing."""
        from kvscope_events.wire.endpoint import EndpointError
        from kvscope_exporter.configuration import ConfigurationError

        try:
            wanted = self.read_again()
            changes = sidecar.watch(wanted.servers, self.sets(wanted))
        except (EndpointError, ConfigurationError) as error:
            reloads.ended(successful=False)
            logger.error("not reloaded, the previous configuration stays in use: %s", error)
            return
        except Exception:
            reloads.ended(successful=False)
            raise  # the caller logs it
        reloads.ended(successful=True)
        logger.info("reloaded %s: %s", self.file, changes)
        if wanted.listen != at_start.listen:
            logger.warning("%s: a change of `listen` takes effect after a restart", self.file)
