"""Lists of modules in a quantization_config: plain names, parts of names, `re:` patterns."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvscope_engine.sizing.config_json import ConfigError
from kvscope_events.printable import one_line

MAX_MODULES = 1_000_000
_MAX_PATTERNS = 256
_MAX_PATTERN = 300
_MAX_REPEATS = 4
_REPEATS = re.compile(r"[*+{]")
_NESTED = re.compile(r"\)[*+{]")
"""A repeated group can take a regular expression years."""
_PATTERN = "re:"
_OWN_EXPERT = re.compile(r"\bexperts\.\d+\b")
_MIXER = re.compile(
    r"^(layers\.\d+)\.(?:mlp|mixer|self_attn|linear_attn|block_sparse_moe|feed_forward)\.(?=.)"
)
"""Checkpoints differ in the names of a layer's parts; the names within a part are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """The modules that a list names."""

    names: frozenset[str] = frozenset()
    """Names, or whole parts of them between dots, from the decoder's `layers.` on."""
    patterns: tuple[re.Pattern[str], ...] = field(default=())
    every: bool = False
    """All of them."""

    def have(self, module: str, layer: int | None) -> bool:
        """module: as within its layer. layer: None for what is in no layer."""
        if not self.names and not self.patterns and not self.every:
            return False
        if self.every:
            return True
        name = module if layer is None else f"layers.{layer}.{module}"
        if _MIXER.sub(r"\1.", name) in self.names:
            return True
        words = name.split(".")
        parts = (
            ".".join(words[first:last])
            for first in range(len(words))
            for last in range(first + 1, len(words) + 1)
        )
        if any(part in self.names for part in parts):
            return True
        whole = f"model.{name}" if layer is not None else name
        return any(pattern.match(whole) for pattern in self.patterns)


def modules_of(listed: Iterable[object]) -> Modules:
    """Raises ConfigError for a pattern that cannot be read, or takes too long to match."""
    names, patterns = set(), []
    for item in listed:
        text = str(item)
        if text.startswith(_PATTERN):
            patterns.append(_compiled(text.removeprefix(_PATTERN)))
            continue
        layers = text.find("layers.")
        name = text[layers:] if layers >= 0 else text.removeprefix("model.")
        name = _OWN_EXPERT.sub("experts", name.strip("*.")).replace(
            "shared_experts", "shared_expert"
        )
        names |= {name, _MIXER.sub(r"\1.", name)}
    if len(patterns) > _MAX_PATTERNS:
        raise ConfigError(f"config.json: quantization_config has {len(patterns)} patterns")
    every = bool(names & {"Linear", "FusedMoE"})
    return Modules(names=frozenset(names), patterns=tuple(patterns), every=every)


def _compiled(pattern: str) -> re.Pattern[str]:
    repeats = len(_REPEATS.findall(pattern))
    if len(pattern) > _MAX_PATTERN or repeats > _MAX_REPEATS or _NESTED.search(pattern):
        raise ConfigError(
            "config.json: a pattern of quantization_config is too involved: "
            f"{one_line(pattern, 80)}"
        )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise ConfigError(
            f"config.json: quantization_config has an invalid pattern: "
            f"{one_line(pattern, 80)} ({error})"
        ) from None
