"""`kvscope fleet`: follows the sidecars of many replicas; runs without torch."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.options.generated import with_options
from kvscope.options.listen import Address, PageAccess
from kvscope.output import configure_logging, fail
from kvscope.places import server_named
from kvscope.serving.protection import Protection
from kvscope.serving.stacks import show_stacks
from kvscope_engine.option import option

if TYPE_CHECKING:
    from kvscope_exporter.fleet.member import Read
    from kvscope_exporter.fleet.roster import Find
    from kvscope_exporter.scrape.tls import Tls

DEFAULT_PORT = 8011
"""Next to the sidecar's."""
logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The command line of a fleet: its sidecars, what is remembered of them, and the page."""

    sidecars: tuple[str, ...] = option(
        (),
        "A sidecar, `kvscope run` or `kvscope engine serve`: a URL or HOST:PORT. "
        "May be repeated. Default NAME: host and port.",
        "[NAME=]URL",
        flags=("--sidecar",),
    )
    sidecars_from: tuple[str, ...] = option(
        (),
        "List of sidecars in the JSON format of Prometheus' file_sd_configs and http_sd_configs, "
        "read again every 30 s. May be repeated.",
        "FILE|URL",
    )
    sidecars_at: tuple[str, ...] = option(
        (),
        "DNS name with an address for every sidecar, such as a headless service's; resolved again "
        "every 30 s. May be repeated.",
        "NAME:PORT",
    )
    token_file: Path | None = option(
        None, "File with the bearer token that the sidecars' pages require.", "FILE"
    )
    sidecar_ca: Path | None = option(
        None,
        "PEM file of the authorities that sign the sidecars' certificates; sidecars found by "
        "--sidecars-at are read over https then.",
        "FILE",
    )
    remember_blocks: int = option(
        1 << 22,
        "Blocks that each set of replicas remembers having been asked for, and the largest shared "
        "tier that is simulated; once used, each takes about ten bytes, and each prompt 300.",
        "N",
        least=1 << 10,
        most=1 << 26,
    )
    sample: int = option(
        1,
        "Fold one of N conversations, where all would be too many for one process; figures are "
        "estimates then, and /api/fleet has their standard error.",
        "N",
        least=1,
        most=64,
    )
    address: Address = Address(port=DEFAULT_PORT)
    access: PageAccess = PageAccess()


_DEFAULT = FleetOptions()


@with_options
def fleet(options: FleetOptions = _DEFAULT) -> None:
    """Show where a fleet's prefix cache hits are lost.

    Reads from each sidecar which names of blocks its replicas looked up, gained and lost. /metrics
    is the page for Prometheus, /api/fleet the answer as JSON, / the same to read.

    Example: kvscope fleet --sidecar http://10.0.0.1:8010 --sidecar http://10.0.0.2:8010

    Example: kvscope fleet --sidecars-at kvscope-sidecars.llm.svc:8010
    """
    from kvscope_exporter.scrape.tls import Tls

    configure_logging()
    show_stacks()
    tls = Tls(ca=None if options.sidecar_ca is None else str(options.sidecar_ca))
    headers = _headers(options.token_file)
    try:
        tls.context()
    except OSError as error:
        raise fail(f"--sidecar-ca {options.sidecar_ca}: {error.strerror or error}") from None
    try:
        finds = _finds(options, tls)
    except ValueError as error:
        raise fail(error) from None
    if not finds:
        raise fail("name the sidecars: --sidecar URL, --sidecars-from FILE or --sidecars-at NAME")
    host = options.address.host
    protection = Protection(options.access, [host])

    from prometheus_client import CollectorRegistry, ProcessCollector

    from kvscope.serving.listen import listening, url_of
    from kvscope.serving.run import AppServer
    from kvscope.serving.signals import signals_end
    from kvscope_exporter.clock import Clock
    from kvscope_exporter.fleet.collector import FleetCollector, FleetPage
    from kvscope_exporter.fleet.fleet import Fleet
    from kvscope_exporter.fleet.follower import Follower
    from kvscope_exporter.fleet.member import reading
    from kvscope_exporter.fleet.roster import Roster
    from kvscope_exporter.web.access import Access
    from kvscope_exporter.web.fleet import fleet_app

    clock = Clock()
    follower = Follower(Fleet(options.remember_blocks, options.sample), clock)

    def watch(places: Mapping[str, str]) -> None:
        wanted: dict[str, Callable[[], Read]] = {
            name: partial(reading, url, tls, headers) for name, url in places.items()
        }
        came, went = follower.watch(wanted)
        if came or went:
            logger.info("sidecars: %d (%d added, %d removed)", len(places), len(came), len(went))

    roster = Roster(finds, watch)
    registry = CollectorRegistry()
    registry.register(FleetCollector(follower.fleet, lambda: follower.members, clock))
    ProcessCollector(registry=registry)
    with signals_end() as ending, listening(host, options.address.port) as listener:
        page_tls = protection.tls_of_pages
        url = url_of(host, listener.getsockname()[1], tls=page_tls is not None)
        protection.warn(host, url, has_api=False)
        roster.look()
        follower.start()
        roster.start()
        logger.info("the fleet: %s", url)
        try:
            app = fleet_app(FleetPage(registry), follower.fleet)
            AppServer(Access(app, protection.access), tls=page_tls).run_until_end(listener, ending)
        finally:
            roster.stop()
            follower.stop()
    logger.info("stopped")


def _headers(key_file: Path | None) -> Mapping[str, str]:
    from kvscope_exporter.fetch.error import FetchError
    from kvscope_exporter.fleet.member import BearerHeader

    if key_file is None:
        return {}
    header = BearerHeader(key_file)
    try:
        dict(header)
    except FetchError as error:
        raise fail(f"--token-file: {error}") from None
    return header


def _finds(options: FleetOptions, tls: "Tls") -> "list[Find]":
    """Raises ValueError."""
    from urllib.parse import urlsplit

    from kvscope_exporter.configuration.check_server import NAME, NAME_RULE, url_problem
    from kvscope_exporter.fetch.address import is_address
    from kvscope_exporter.fleet.roster import behind, fixed, listed_at, listed_in

    finds: list[Find] = []
    places: dict[str, str] = {}
    for text in options.sidecars:
        name, equals, url = text.partition("=")
        if not equals or "/" in name:
            name, url = urlsplit(text).netloc if "://" in text else text, text
        if "://" not in url:
            url = server_named(url)
            name = name or urlsplit(url).netloc
        if problem := url_problem(url):
            raise ValueError(f"--sidecar {text}: {problem}: write http://HOST:PORT")
        if NAME.fullmatch(name) is None:
            raise ValueError(f"--sidecar {text}: {name!r} is not a name: {NAME_RULE}")
        if name in places:
            raise ValueError(f"--sidecar {text}: {name} is given twice")
        places[name] = url
    if places:
        finds.append(fixed(list(places.items())))
    for place in options.sidecars_from:
        if place.startswith(("http://", "https://")):
            finds.append(listed_at(place, tls))
        else:
            finds.append(listed_in(Path(place)))
    for text in options.sidecars_at:
        host, _, port = text.rpartition(":")
        if not host or not is_address(text):
            raise ValueError(f"--sidecars-at {text}: expected NAME:PORT")
        try:
            finds.append(behind(host, int(port), "http" if tls.ca is None else "https"))
        except ValueError as error:
            raise ValueError(f"--sidecars-at {error}") from None
    return finds
