"""The address of a vLLM's API server, from the command that starts it."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

DEFAULT_PORT = 8000
_MODULE = "vllm.entrypoints.openai.api_server"
_CLI = "vllm.entrypoints.cli.main"
_VALUES = ("host", "port", "uds", "ssl-keyfile", "ssl-certfile", "config")
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}
_MAX_CONFIG = 256 << 10


def api_server_of(command: Sequence[str]) -> str | None:
    """Its base URL; None: the command starts no known server, or one without its own port."""
    given = _arguments(command)
    if given is None:
        return None
    options = _options(given)
    if "config" in options:
        options = {**_of_file(options["config"]), **options}
    if "headless" in options or "uds" in options:
        return None
    port = options.get("port", str(DEFAULT_PORT))
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        return None
    host = options.get("host", "")
    if ":" in host and host not in _EVERYWHERE:
        host = f"[{host}]"
    is_tls = "ssl-keyfile" in options and "ssl-certfile" in options
    scheme = "https" if is_tls else "http"
    return f"{scheme}://{_EVERYWHERE.get(host, host)}:{port}"


def _arguments(command: Sequence[str]) -> Sequence[str] | None:
    """The arguments of vLLM's server, whatever starts it (`env`, `numactl`, `uv run`); None: it is
    not such a command.
    """
    for place, word in enumerate(command):
        following = command[place + 1 :]
        if word == _MODULE:
            return following
        if word == _CLI or PurePath(word).name == "vllm":
            return following[1:] if following[:1] == ["serve"] else None
    return None


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Options for its address; of repeated ones the last, as in vLLM."""
    found: dict[str, str] = {}
    for place, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        name, has_value, value = argument[2:].partition("=")
        name = name.replace("_", "-")
        if name == "headless":
            found[name] = ""
        elif name in _VALUES:
            following = arguments[place + 1 : place + 2]
            found[name] = value if has_value else "".join(following)
    return found


def _of_file(path: str) -> dict[str, str]:
    """The address options in vLLM's own configuration file; empty if vLLM cannot read it either."""
    import yaml

    from exporter.configuration import ConfigurationError
    from exporter.configuration.error import read_text

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
    return options | ({"headless": ""} if named.get("headless") is True else {})
