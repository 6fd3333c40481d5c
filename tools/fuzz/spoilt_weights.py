"""Faults of a checkpoint's weights: headers that lie, offsets, indexes, and bytes themselves."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
_DTYPES = (
    "F64",
    "F32",
    "F16",
    "BF16",
    "I32",
    "U32",
    "I8",
    "BOOL",
    "F8_E4M3",
    "C64",
    "F4",
    "X",
    "",
    5,
)

Header = dict[str, Any]


def spoil_header(file: Path, rng: random.Random) -> str:
    """Change an entry, or the header as a whole."""
    header, data = _parts(file)
    name = rng.choice([key for key in header if key != "__metadata__"])
    change = rng.choice(_ENTRIES if rng.random() < 0.75 else _WHOLES)
    how = change(header, name, rng)
    _write(file, header, data)
    return f"{file.name}: {name}: {how}"


def spoil_bytes(file: Path, rng: random.Random) -> str:
    """Change bytes of the file, whatever they mean."""
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    start = 8 + size
    at = rng.randrange(len(content))
    in_header = rng.randrange(8, start)
    faults: dict[str, Callable[[], bytes]] = {
        f"cut at {at}": lambda: content[:at],
        "longer": lambda: content + b"x",
        "header flipped": lambda: _flipped(content, in_header, rng),
        "size flipped": lambda: _flipped(content, rng.randrange(8), rng),
        "size of 2^63": lambda: (2**63).to_bytes(8, "little") + content[8:],
        "zeros": lambda: bytes(len(content)),
        "tensors of zeros": lambda: content[:start] + bytes(len(content) - start),
        "tensors of ones": lambda: content[:start] + b"\xff" * (len(content) - start),
        "tensors of noise": lambda: content[:start] + rng.randbytes(len(content) - start),
        "a byte of data": lambda: _flipped(content, rng.randrange(start, len(content)), rng),
        "deep header": lambda: (100_000).to_bytes(8, "little") + b"[" * 100_000,
        "list as header": lambda: (2).to_bytes(8, "little") + b"[]",
        "header of 60 GB": lambda: (60 * 10**9).to_bytes(8, "little") + content[8:],
        "pointer": lambda: b"version https://git-lfs.github.com/spec/v1\n",
    }
    how = rng.choice(list(faults))
    file.write_bytes(faults[how]())
    return f"{file.name}: {how}"


def spoil_index(folder: Path, rng: random.Random) -> str:
    """Change the index of a checkpoint of several weight files."""
    file = folder / INDEX
    content = json.loads(file.read_text())
    weight_map = content["weight_map"]
    name = rng.choice(list(weight_map))
    fault = rng.randrange(6)
    if fault == 0:
        weight_map[name] = rng.choice(
            (
                "../x.safetensors",
                "/etc/passwd",
                "",
                5,
                None,
                ["a"],
                {},
                "x.safetensors",
                "config.json",
            )
        )
    elif fault == 1:
        weight_map[rng.choice(("more", "model.layers.9.x", ""))] = weight_map[name]
    elif fault == 2:
        del weight_map[name]
    elif fault == 3:
        weight_map[name] = rng.choice(list(weight_map.values()))
    elif fault == 4:
        content["weight_map"] = rng.choice(([], {}, 5, "x", None, {"a": {"b": 1}}))
    else:
        content["metadata"] = rng.choice(([], 5, {"dtype": "int8"}, {"total_size": -1}))
    file.write_text(json.dumps(content))
    return f"{INDEX}: fault {fault} at {name}"


def _dtype(header: Header, name: str, rng: random.Random) -> str:
    header[name]["dtype"] = rng.choice(_DTYPES)
    return f"type {header[name]['dtype']}"


def _shape(header: Header, name: str, rng: random.Random) -> str:
    shape = header[name]["shape"]
    product = 1
    for size in shape:
        product *= size
    header[name]["shape"] = rng.choice(
        (
            *(shape[::-1], [product], [*shape, 1], [-1, -product], [0], [], [product, 0]),
            *([2**62, 4], [10**6, 10**6], ["64"], [1.5], [True, product], None, "x"),
        )
    )
    return f"shape {header[name]['shape']}"


def _offsets(header: Header, name: str, rng: random.Random) -> str:
    begin, end = header[name]["data_offsets"]
    other = rng.choice([key for key in header if key != "__metadata__"])
    header[name]["data_offsets"] = rng.choice(
        (
            *([end, begin], [begin - 4, end - 4], [-4, end - begin - 4], [begin, end + 4], [begin]),
            *([begin, end, 5], ["0", "4"], [0.0, 4.0], None, [0, 2**64], [begin + 4, end]),
            header[other]["data_offsets"],
        )
    )
    return f"offsets {header[name]['data_offsets']} for {[begin, end]}"


def _swapped(header: Header, name: str, rng: random.Random) -> str:
    other = rng.choice([key for key in header if key != "__metadata__"])
    header[name], header[other] = header[other], header[name]
    return f"swapped with {other}"


def _removed(header: Header, name: str, rng: random.Random) -> str:
    del header[name]
    return "removed"


def _renamed(header: Header, name: str, rng: random.Random) -> str:
    new = rng.choice(("", "x", f"model.{name}", name.upper(), "\ud800", "a\nb", "__metadata__"))
    header[new] = header.pop(name)
    return f"renamed to {new!r}"


def _entry(header: Header, name: str, rng: random.Random) -> str:
    header[name] = rng.choice((None, 5, [], {}, "x", {"dtype": "F32"}, {**header[name], "more": 1}))
    return "no entry"


def _metadata(header: Header, name: str, rng: random.Random) -> str:
    header["__metadata__"] = rng.choice(
        ({}, 5, [], None, {"format": 5}, {"format": "tf"}, {"format": "x"}, {"a": {"b": "c"}})
    )
    return f"metadata {header['__metadata__']}"


def _empty_tensor(header: Header, name: str, rng: random.Random) -> str:
    at = header[name]["data_offsets"][rng.randrange(2)]
    header["more.weight"] = {"dtype": "F32", "shape": [0, 5], "data_offsets": [at, at]}
    return "an empty tensor more"


def _nothing(header: Header, name: str, rng: random.Random) -> str:
    header.clear()
    return "no tensors at all"


Change = Callable[[Header, str, random.Random], str]
_ENTRIES: tuple[Change, ...] = (_dtype, _shape, _offsets, _swapped)
_WHOLES: tuple[Change, ...] = (_removed, _renamed, _entry, _metadata, _empty_tensor, _nothing)


def _parts(file: Path) -> tuple[Header, bytes]:
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: Header = json.loads(content[8:start])
    return header, content[start:]


def _write(file: Path, header: Header, data: bytes) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _flipped(content: bytes, at: int, rng: random.Random) -> bytes:
    return content[:at] + bytes((content[at] ^ 1 << rng.randrange(8),)) + content[at + 1 :]
