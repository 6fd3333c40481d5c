"""A file of groups: what the layers of a model keep, for models that no table knows.

docs/plan/planning.md has an example. One group is a cache that several layers have alike.
"""

from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Annotated

import msgspec

from kvscope.plan.cache import KVLayer
from kvscope_engine.json_file import JsonFileError, read_json_object
from kvscope_engine.sizing.config_json import ConfigError
from kvscope_engine.sizing.units import MAX_LAYERS, MAX_SIZE
from kvscope_events.printable import one_line

_MAX_BYTES = 2**20
_Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]


class _Heads(msgspec.Struct):
    """The fields of a group that are not those of a cache."""

    layers: list[Annotated[int, msgspec.Meta(ge=0, lt=MAX_LAYERS)] | str] | int
    kv_heads: _Size = 1
    head_dim: _Size | None = None
    value_dim: _Size | None = None
    elements: _Size | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    groups: list[dict[str, object]]
    layers: Annotated[int, msgspec.Meta(ge=1, le=MAX_LAYERS)] | None = None


_OF_CACHE = {field.name for field in fields(KVLayer)} - {"layer", "heads", "head_elements"}
_OF_HEADS = set(_Heads.__struct_fields__)


def read_layers(path: Path) -> tuple[int, tuple[KVLayer, ...]]:
    """The number of decoder layers, and what they keep, in order. Raises ConfigError."""
    try:
        content = msgspec.convert(read_json_object(path, _MAX_BYTES), _File)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (JsonFileError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {one_line(str(error), 300)}") from error
    kept = []
    for number, group in enumerate(content.groups):
        try:
            cache, numbers = _group(group)
            kept += [(layer, number, replace(cache, layer=layer)) for layer in numbers]
        except ValueError as error:  # msgspec's too
            raise ConfigError(f"{path}: groups[{number}]: {error}") from None
    if not kept:
        raise ConfigError(f"{path}: it has no groups: list what the layers keep")
    kept.sort(key=lambda each: each[:2])
    count = content.layers or kept[-1][0] + 1
    if kept[-1][0] >= count:
        raise ConfigError(
            f"{path}: a group has layer {kept[-1][0]}, and layers are {count}, from 0"
        )
    return count, tuple(cache for _, _, cache in kept)


def _numbers(given: list[int | str] | int) -> list[int]:
    """`5` is the first five layers; a list has numbers from 0, and ranges as `"3-60"`."""
    if isinstance(given, int):
        if not 1 <= given <= MAX_LAYERS:
            raise ValueError(f"layers must be from 1 to {MAX_LAYERS:,}, got {given}")
        return list(range(given))
    numbers: list[int] = []
    for item in given:
        if isinstance(item, int):
            numbers.append(item)
            continue
        first, _, last = item.partition("-")
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < MAX_LAYERS):
            raise ValueError(f'layers has {one_line(repr(item), 40)}: write a range as "3-60"')
        numbers += range(int(first), int(last) + 1)
    return numbers


def _group(group: dict[str, object]) -> tuple[KVLayer, list[int]]:
    """A cache, and the layers that have it. Raises ValueError for a group that says too little."""
    unknown = sorted(group.keys() - _OF_CACHE - _OF_HEADS)
    if unknown:
        known = ", ".join(sorted(_OF_CACHE | _OF_HEADS))
        raise ValueError(f"{one_line(unknown[0], 40)} is not among the fields of a group: {known}")
    heads = msgspec.convert(group, _Heads)
    cache = msgspec.convert(group, KVLayer)
    if any(type(size) is int and not 0 <= size <= MAX_SIZE for size in _sizes(cache)):
        raise ValueError(f"every size is from 0 to {MAX_SIZE:,}")
    if (cache.kind == "state") != (cache.state is not None):
        raise ValueError("a group of kind state has a state, and no other has one")
    if cache.kind in ("sliding", "chunked", "cross") and not cache.window:
        raise ValueError(f"a group of kind {cache.kind} has a window, in tokens")
    if min(cache.tokens_per_entry, cache.alignment, cache.block_size or 1) < 1:
        raise ValueError("tokens_per_entry, alignment and block_size are at least 1")
    elements = heads.elements
    if elements is None and heads.head_dim is not None:
        elements = heads.head_dim + (heads.value_dim or heads.head_dim)
    if elements is None and not cache.entry_bytes and cache.state is None:
        raise ValueError("give head_dim, elements or entry_bytes: the size of one token's entry")
    if cache.tokens_per_entry > 1 and cache.block_size is None:
        raise ValueError("a group with tokens_per_entry has a block_size, in tokens")
    return replace(cache, heads=heads.kv_heads, head_elements=elements or 0), _numbers(heads.layers)


def _sizes(cache: KVLayer) -> list[object]:
    own = [getattr(cache, name) for name in _OF_CACHE]
    return own if cache.state is None else [*own, *astuple(cache.state)]
