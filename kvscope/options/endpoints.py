"""`--events [NAME=]ENDPOINT` and `--url [NAME=]URL`: the servers that a sidecar watches."""

import re
from collections.abc import Iterable

import msgspec

from kvscope_exporter.configuration import ConfigurationError, ServerConfig, SidecarConfig
from kvscope_exporter.configuration.check import check
from kvscope_exporter.configuration.check_server import NAME, NAME_RULE
from kvscope_exporter.configuration.model import FOLDER

_NAMED = re.compile(r"(?P<name>[^=/]*)=(?P<place>[a-z]+://.*)", re.DOTALL)
_BARE = re.compile(r"(?P<name>[^=/:]+=)?(?P<place>[\w.-]+:\d{1,5}(/.*)?)")
_EVENTS = "--events", "ENDPOINT", "llama=tcp://127.0.0.1:5557"
_URL = "--url", "URL", "llama=http://127.0.0.1:8000"


def servers_of(events: Iterable[str], urls: Iterable[str] = ()) -> list[ServerConfig]:
    """Servers in the given order; options with the same NAME belong to one server.

    Raises ValueError, which names the option.
    """
    servers: dict[str, ServerConfig] = {}
    derived: dict[str, str] = {}
    paths: dict[str, str] = {}
    given = [(_EVENTS, text) for text in events] + [(_URL, text) for text in urls]
    for form, text in given:
        option = form[0]
        name, place = _split(form, text)
        if name is None:
            name = _derive(form, place)
            if name in servers:
                first = [*servers[name].events, servers[name].url][0]
                if first == place:
                    raise ValueError(f"{option} {text}: given twice; keep one")
                raise ValueError(
                    f"{option} {text}: {first} is called {name!r} as well; write "
                    f"NAME={place}, with the same NAME for what belongs to one server"
                )
            derived[name] = place
        elif name in derived:
            raise ValueError(
                f"{option} {text}: {derived[name]} is called {name!r} without being named; "
                f"write {name}={derived[name]} if both belong to one server"
            )
        server = servers.setdefault(name, ServerConfig(name=name))
        number = list(servers).index(name)
        if option == "--url":
            if server.url is not None:
                raise ValueError(f"--url {text}: {name} has a URL already, {server.url}")
            paths[f"servers[{number}].url"] = f"--url {text}"
            servers[name] = msgspec.structs.replace(server, url=place)
        else:
            paths[f"servers[{number}].events[{len(server.events)}]"] = f"--events {text}"
            servers[name] = msgspec.structs.replace(server, events=(*server.events, place))
    if not servers:
        raise ValueError("name a server to watch: --events ENDPOINT, --url URL or --config FILE")
    _check(servers, paths)
    return list(servers.values())


def _check(servers: dict[str, ServerConfig], paths: dict[str, str]) -> None:
    """Check like a configuration file, but with option names in errors instead of its paths."""
    try:
        check(SidecarConfig(servers=tuple(servers.values())))
    except ConfigurationError as error:
        text = str(error).removeprefix(f"{error.path}: ")
        for path, option in paths.items():
            text = text.replace(path, option)
        raise ValueError(f"{paths.get(error.path, error.path)}: {text}") from None


def _split(form: tuple[str, str, str], text: str) -> tuple[str | None, str]:
    option, place, example = form
    named = _NAMED.fullmatch(text)
    if named is None and place == "URL" and (bare := _BARE.fullmatch(text)):
        text = f"{bare['name'] or ''}http://{bare['place']}"
        named = _NAMED.fullmatch(text)
    if named is None:
        if "://" not in text:
            raise ValueError(
                f"{option} {text!r}: expected NAME={place} or {place}, such as {example}"
            )
        return None, text
    name = named["name"]
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{option} {text!r}: {name!r} is not a name; {NAME_RULE}")
    return name, named["place"]


def _derive(form: tuple[str, str, str], place: str) -> str:
    """ipc:///run/kvscope/serve-8000.sock → serve-8000; tcp://127.0.0.1:5557 → 127.0.0.1:5557."""
    transport, _, rest = place.partition("://")
    if transport == "ipc":
        rest = rest.removesuffix(FOLDER).rpartition("/")[2].removesuffix(".sock")
    elif transport in ("http", "https"):
        rest = rest.partition("/")[0]
    if NAME.fullmatch(rest) is None:
        option, kind, _ = form
        raise ValueError(f"{option} {place!r}: it gives no name: write NAME={kind}")
    return rest
