"""A checkpoint's config.json and the header of its weights, as `serve` and `plan` read them."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvscope.plan.shape import shape_from_config
from kvscope_engine.model.checkpoint import check_files
from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.sizing import ConfigError, read_config
from tools.fuzz.target import CORPUS, Codec, Parse, Target

_LENGTH_BYTES = 8


@contextmanager
def _folder(fixed: str, corpus: str) -> Iterator[Path]:
    """A checkpoint of two files, of which the one called `fixed` stays as the corpus has it."""
    with tempfile.TemporaryDirectory(prefix="kvscope-fuzz-") as name:
        folder = Path(name)
        (folder / fixed).write_bytes((CORPUS / corpus).read_bytes())
        yield folder


@contextmanager
def _headers() -> Iterator[Parse]:
    with _folder("config.json", "checkpoint_configs/llama.json") as folder:

        def parse(content: bytes) -> bool:
            (folder / "model.safetensors").write_bytes(content)
            try:
                check_files(folder)
            except CheckpointError:
                return False
            return True

        yield parse


@contextmanager
def _configs() -> Iterator[Parse]:
    with _folder("model.safetensors", "checkpoint_headers/two_tensors") as folder:

        def parse(content: bytes) -> bool:
            (folder / "config.json").write_bytes(content)
            try:
                check_files(folder)
                shape_from_config(read_config(folder), "fuzzed")
            except (CheckpointError, ConfigError):
                return False
            return True

        yield parse


def _decode_header(content: bytes) -> object:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    end = _LENGTH_BYTES + length
    return {"header": json.loads(content[_LENGTH_BYTES:end]), "size": len(content) - end}


def _encode_header(value: object) -> bytes:
    parts = value if isinstance(value, dict) else {"header": value}
    header = json.dumps(parts.get("header")).encode()
    size = parts.get("size")
    num_bytes = size if isinstance(size, int) and 0 <= size < 1 << 16 else 0
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + bytes(num_bytes)


CHECKPOINT_HEADERS = Target(
    name="checkpoint_headers",
    opened=_headers,
    codec=Codec(decode=_decode_header, encode=_encode_header),
    tokens=(b'"data_offsets"', b'"shape"', b'"dtype"', b'"__metadata__"', b"[[[[", b"-1"),
)
CHECKPOINT_CONFIGS = Target(
    name="checkpoint_configs",
    opened=_configs,
    codec=Codec(decode=json.loads, encode=lambda value: json.dumps(value).encode()),
    tokens=(b'"model_type"', b'"layer_types"', b'"num_hidden_layers"', b"[[[[", b"1e400"),
)
