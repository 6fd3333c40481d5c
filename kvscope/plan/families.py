"""Differences of each model type from Llama: the kinds of its layers, and its defaults."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Layout = str
"""The rule for the kinds of layers if config.json does not list them; see `layouts`."""
StateKind = Literal["delta_net", "kda", "mamba1", "mamba2", "lightning", "short_conv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Differences of a model type from Llama."""

    layout: Layout = "full"
    state: StateKind | None = None
    """The kind of state in layers without K and V."""
    attentions: int = 1
    """Attentions of a layer, each with a cache of its own."""
    window_and_own: bool = False
    """A token sees itself beside its window, which is one token longer by that."""
    counted: bool = True
    """The weights follow from the fields; else only what the layers keep."""
    tied: bool = False
    """Output head and embedding share their matrix unless config.json says otherwise."""
    gated_mlp: bool = True
    """The feed-forward network has three matrices; else two."""
    gated_query: bool = False
    """The query projection also makes an output gate."""
    experts_beside: bool = False
    """Experts stand beside a dense network."""
    always_shared: bool = False
    """A shared expert stands in every layer, with or without routed ones."""
    feed_forward: bool = True
    """Every layer has a feed-forward network beside its attention or state."""
    defaults: Mapping[str, object] = field(default_factory=dict)


def _read() -> dict[str, Family]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["family"]
    return {name: Family(**row) for row in rows for name in row.pop("names")}


FAMILIES: Mapping[str, Family] = _read()
"""By model_type, that of the text decoder without the `_text` that some add to it."""


def find_family(model_type: str) -> Family | None:
    """None: nothing is known of its layers."""
    name = model_type.removesuffix("_text")
    return FAMILIES.get(name) or FAMILIES.get(name.removesuffix("_vl"))
