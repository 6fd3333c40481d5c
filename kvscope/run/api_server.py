"""The kind of server that a command starts, and the address of its API server."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from kvscope_events.vocabulary import ServerKind

DEFAULT_PORTS: dict[ServerKind, int] = {"vllm": 8000, "sglang": 30000}
_MODULES: dict[str, ServerKind] = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "sglang.launch_server": "sglang",
}
_PROGRAMS: dict[str, ServerKind] = {
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.cli.main": "sglang",
    "vllm": "vllm",
    "sglang": "sglang",
}
"""Modules and executables that start a server with the word `serve`."""
_VALUES = ("host", "port", "uds", "ssl-keyfile", "ssl-certfile", "config")
_SWITCHES = ("headless", "enable-metrics")
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}
_MAX_CONFIG = 256 << 10


def kind_of(command: Sequence[str]) -> ServerKind:
    """The kind of server that it starts; a command that is not known is taken for vLLM's."""
    known = known_server(command)
    return "vllm" if known is None else known[0]


def api_server_of(command: Sequence[str], *, is_here: bool = True) -> str | None:
    """Its base URL; None: the command starts no known server, or one without its own port or page
    of metrics.

    is_here: whether the paths in the command are files of this machine.
    """
    known = known_server(command)
    if known is None:
        return None
    kind, given = known
    options = _options(given)
    if kind == "sglang" and "enable-metrics" not in options:
        return None
    if "config" in options and not is_here:
        return None
    if "config" in options:
        options = {**_of_file(options["config"]), **options}
    if "headless" in options or "uds" in options:
        return None
    port = options.get("port", str(DEFAULT_PORTS[kind]))
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        return None
    host = options.get("host", "")
    if ":" in host and host not in _EVERYWHERE:
        host = f"[{host}]"
    is_tls = "ssl-keyfile" in options and "ssl-certfile" in options
    scheme = "https" if is_tls else "http"
    return f"{scheme}://{_EVERYWHERE.get(host, host)}:{port}"


def known_server(command: Sequence[str]) -> tuple[ServerKind, Sequence[str]] | None:
    """The kind and the arguments of the server, whatever starts it (`env`, `numactl`, `uv run`);
    None: it is not such a command.
    """
    for place, word in enumerate(command):
        following = command[place + 1 :]
        if word in _MODULES:
            return _MODULES[word], following
        kind = _PROGRAMS.get(word) or _PROGRAMS.get(PurePath(word).name)
        # A script may ask for its version, or name a folder so, before it starts one.
        if kind is not None and following[:1] == ["serve"]:
            return kind, following[1:]
    return None


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Options for its address; of repeated ones the last, as the servers do."""
    found: dict[str, str] = {}
    for place, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        name, has_value, value = argument[2:].partition("=")
        name = name.replace("_", "-")
        if name in _SWITCHES:
            found[name] = ""
        elif name in _VALUES:
            following = arguments[place + 1 : place + 2]
            found[name] = value if has_value else "".join(following)
    return found


def _of_file(path: str) -> dict[str, str]:
    """The options in the server's own configuration file; empty if it cannot read it either."""
    import yaml

    from kvscope_exporter.configuration import ConfigurationError
    from kvscope_exporter.configuration.error import read_text

    file = Path(path)
    if not file.is_file():
        return {}
    try:
        document = yaml.safe_load(read_text(file, _MAX_CONFIG))
    except (ConfigurationError, yaml.YAMLError):
        return {}
    if not isinstance(document, Mapping):
        return {}
    named = {str(key).replace("_", "-"): value for key, value in document.items()}
    options = {name: str(named[name]) for name in _VALUES if named.get(name) is not None}
    return options | {name: "" for name in _SWITCHES if named.get(name) is True}
