"""A checkpoint's config.json, read without transformers: its place, its fields, their errors."""

from collections.abc import Mapping
from pathlib import Path

from kvscope_engine.json_file import JsonFileError, read_json_object
from kvscope_engine.sizing.units import MAX_LAYERS, MAX_SIZE
from kvscope_events.printable import one_line

_LOCAL_PREFIXES = ("/", ".", "~")


def local_path(model: str) -> Path | None:
    """The file or folder that `model` names, there or not; None: it is a name on the hub.

    A hub name has at most one slash (`gpt2`, `Qwen/Qwen3-0.6B`), and no local path has that name.
    """
    path = _expanded(model)
    if model.startswith(_LOCAL_PREFIXES) or model.count("/") > 1:
        return path
    try:
        return path if path.exists() else None
    except OSError:  # too long for a file, or in a folder that may not be looked into
        return None


def _expanded(model: str) -> Path:
    try:
        return Path(model).expanduser()
    except RuntimeError:  # ~name of an unknown user
        return Path(model)


Config = Mapping[str, object]

CONFIG = "config.json"
MAX_CONFIG_BYTES = 8 * 2**20
"""Bytes of a configuration; those that list thousands of classes have 1 MB."""

_NESTED = ("thinker_config", "text_config", "language_config", "llm_config", "text_model_config")
"""Keys under which multimodal checkpoints keep the configuration of their decoder."""
_INHERITED = ("torch_dtype", "dtype", "model_type", "tie_word_embeddings")
"""Fields of the outer part that hold for the decoder as well, where it has none of its own."""


_QUOTED = 60
"""Maximum characters of a wrong value in an error."""


class ConfigError(Exception):
    """A field that is needed is missing or wrong; the text, one line, names it."""

    def __init__(self, problem: str) -> None:
        super().__init__(one_line(problem))


def read_config(path: Path) -> Config:
    """path: config.json itself or the folder that holds it. Raises ConfigError."""
    try:
        file = path / CONFIG if path.is_dir() else path
        return read_json_object(file, MAX_CONFIG_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename or path}: {error.strerror}") from error
    except JsonFileError as error:
        raise ConfigError(f"{file} {error}") from error


def decoder_config(config: Config) -> Config:
    """The text decoder's part, nested at any depth, with what it takes over from the outer ones."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            absent = [name for name in _INHERITED if name in config and inner.get(name) is None]
            return decoder_config({**inner, **{name: config[name] for name in absent}})
    return config


class Fields:
    """Typed access; a field that is absent or null is looked for under its other names.

    `read` has the names that were asked for, those of nested objects with a dot between.
    """

    def __init__(
        self, config: Config, defaults: Config, read: set[str] | None = None, place: str = ""
    ) -> None:
        self._config = config
        self._defaults = defaults
        self._place = place
        self.read: set[str] = set() if read is None else read
        model_type = config.get("model_type")
        self.model_type = model_type if isinstance(model_type, str) else ""

    def integer(self, *names: str) -> int:
        """Raises ConfigError if none of the names has a positive number."""
        number = self.optional_integer(*names)
        if not number:
            raise ConfigError(f"config.json has no positive {names[0]}")
        return number

    def optional_integer(self, *names: str) -> int | None:
        """The value; None if it is absent or null.

        Raises ConfigError for anything but an integer from 0 to MAX_SIZE.
        """
        for name in names:
            value = self._get(name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(
                    f"config.json: {name} must be an integer, got {one_line(repr(value), _QUOTED)}"
                )
            if not 0 <= value <= MAX_SIZE:
                raise ConfigError(
                    f"config.json: {name} must be from 0 to {MAX_SIZE:,}, "
                    f"got {one_line(str(value), _QUOTED)}"
                )
            return value
        return None

    def flag(self, name: str) -> bool:
        """True if the field is true; absent and null are False."""
        return bool(self._get(name))

    def is_off(self, name: str) -> bool:
        """True if the field is false; an absent one is not."""
        return self._get(name) is False

    def text(self, *names: str) -> str | None:
        for name in names:
            value = self._get(name)
            if isinstance(value, str):
                return value
        return None

    def is_exactly(self, name: str, number: int) -> bool:
        return self._get(name) == number

    def names(self) -> list[str]:
        """The fields that the configuration itself has."""
        return list(self._config)

    def items(self, name: str, most: int = MAX_LAYERS) -> list[object] | None:
        """A list, or None if it is missing. Raises ConfigError for one longer than `most`."""
        value = self._get(name)
        if not isinstance(value, list):
            return None
        if len(value) > most:
            raise ConfigError(f"config.json: {name} has {len(value):,} items")
        return value

    def inner(self, name: str) -> "Fields":
        """The fields of a nested object; none where there is no such object."""
        value = self._get(name)
        place = f"{self._place}{name}."
        return Fields(value if isinstance(value, Mapping) else {}, {}, self.read, place)

    def has(self, name: str) -> bool:
        return self._get(name) is not None

    def _get(self, name: str) -> object:
        """A default replaces an absent field; null replaces the default."""
        self.read.add(self._place + name)
        return self._config[name] if name in self._config else self._defaults.get(name)
