"""The rule files for servers without kvscope."""

from collections.abc import Iterator
from pathlib import Path

from kvscope_alerts.bare.cache import cache_groups
from kvscope_alerts.bare.engines import engine_groups
from kvscope_alerts.bare.levels import level_groups
from kvscope_alerts.bare.limits import Settings
from kvscope_alerts.bare.pack import Pack
from kvscope_alerts.bare.server import SERVERS, Server
from kvscope_alerts.bare.targets import target_groups
from kvscope_alerts.rule import Alert, Group, Places
from kvscope_alerts.timing import Timing
from kvscope_alerts.yaml_text import to_yaml

HEADER = (
    "Written by `python -m kvscope_alerts` from alerts/kvscope_alerts/bare/*.py: change those. "
    "docs/attach/bare-servers.md explains."
)


def groups(server: Server, settings: Settings | None = None) -> list[Group]:
    """All groups of a pack, in the order of its file."""
    pack = Pack(server, settings or Settings(job=server.word))
    return [
        *target_groups(pack),
        *engine_groups(pack),
        *cache_groups(pack),
        *level_groups(pack),
    ]


def alerts(server: Server) -> list[Alert]:
    """All alerts of a pack as shipped, including each of several rules that share a name."""
    return [rule for group in groups(server) for rule in group.rules if isinstance(rule, Alert)]


def pack_file(
    server: Server,
    settings: Settings | None = None,
    places: Places | None = None,
    timing: Timing | None = None,
) -> str:
    """The text of a pack's file. timing: changes the waits of alerts; ranges stay unchanged."""
    timing, places = timing or Timing(), places or Places()
    mapping = {"groups": [group.mapping(timing, places) for group in groups(server, settings)]}
    return to_yaml(mapping, HEADER)


def write(folder: Path, places: Places | None = None) -> Iterator[Path]:
    """Write the packs as shipped into a folder."""
    for server in SERVERS:
        path = folder / f"{server.word}.rules.yml"
        path.write_text(pack_file(server, places=places))
        yield path
