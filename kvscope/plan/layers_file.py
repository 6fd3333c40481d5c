"""A file of groups: what the layers of a model keep, for models that no table knows.

docs/guides/planning.md has an example. One group is a cache that several layers have alike.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from kvscope.plan.cache import KVLayer, State
from kvscope_engine.json_file import JsonFileError, read_json_object
from kvscope_engine.sizing.config_json import ConfigError
from kvscope_engine.sizing.units import MAX_LAYERS, MAX_SIZE
from kvscope_events.printable import one_line

_MAX_BYTES = 2**20
_KINDS = ("full", "sliding", "chunked", "latent", "indexer", "cross", "state")
_Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE)]


class _State(msgspec.Struct, forbid_unknown_fields=True):
    channels: _Count = 0
    kernel: _Size = 1
    recurrent: _Count = 0
    groups: _Count = 0
    group_channels: _Count = 0
    lookahead: bool = True
    checkpoints: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    layers: list[Annotated[int, msgspec.Meta(ge=0, lt=MAX_LAYERS)] | str] | int
    kv_heads: _Size = 1
    head_dim: _Size | None = None
    value_dim: _Size | None = None
    elements: _Size | None = None
    window: _Size | None = None
    entry_bytes: _Size | None = None
    fp8_bytes: _Size | None = None
    tokens_per_entry: _Size = 1
    alignment: _Size = 1
    block_size: _Size | None = None
    state: _State | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    groups: list[_Group]
    layers: Annotated[int, msgspec.Meta(ge=1, le=MAX_LAYERS)] | None = None


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
            kept += [(layer, number, _cache(group, layer)) for layer in _numbers(group.layers)]
        except ValueError as error:
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


def _cache(group: _Group, layer: int) -> KVLayer:
    """Raises ValueError for a group that says too little."""
    if group.kind not in _KINDS:
        raise ValueError(f"kind {one_line(repr(group.kind), 40)} is none of {', '.join(_KINDS)}")
    if (group.kind == "state") != (group.state is not None):
        raise ValueError("a group of kind state has a state, and no other has one")
    if group.kind in ("sliding", "chunked", "cross") and group.window is None:
        raise ValueError(f"a group of kind {group.kind} has a window, in tokens")
    elements = group.elements
    if elements is None and group.head_dim is not None:
        elements = group.head_dim + (group.value_dim or group.head_dim)
    if elements is None and group.entry_bytes is None and group.state is None:
        raise ValueError("give head_dim, elements or entry_bytes: the size of one token's entry")
    if group.tokens_per_entry > 1 and group.block_size is None:
        raise ValueError("a group with tokens_per_entry has a block_size, in tokens")
    return KVLayer(
        kind=group.kind,  # type: ignore[arg-type]  # checked above
        layer=layer,
        heads=group.kv_heads,
        head_elements=elements or 0,
        window=group.window,
        state=None if group.state is None else State(**msgspec.structs.asdict(group.state)),
        entry_bytes=group.entry_bytes,
        fp8_bytes=group.fp8_bytes,
        tokens_per_entry=group.tokens_per_entry,
        alignment=group.alignment,
        block_size=group.block_size,
    )
