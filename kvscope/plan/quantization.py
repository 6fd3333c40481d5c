"""quantization_config: how a checkpoint's weights are stored, by the method that it names."""

from collections.abc import Callable, Mapping

from kvscope.plan.modules import MAX_MODULES, Modules, modules_of
from kvscope.plan.storage import Format, Storage
from kvscope_engine.sizing.config_json import ConfigError, Fields
from kvscope_engine.sizing.dtypes import Dtype
from kvscope_events.printable import one_line

_SKIP_FIELDS = ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules")


def storage_of(config: Mapping[str, object], rest: Dtype) -> Storage:
    """config: a quantization_config. rest: the type of what is not quantized.

    Raises ConfigError for a method, or settings of one, that are not known here.
    """
    fields = Fields(config, {})
    method = (fields.text("quant_method") or "").lower().replace("_", "-")
    if not method and fields.text("quant_algo"):
        method = "modelopt"
    read = _METHODS.get(method)
    if read is None:
        known = ", ".join(sorted(_METHODS))
        raise ConfigError(
            f"config.json: quantization method {one_line(repr(method), 60)} is not known "
            f"({known} are): give --dtype"
        )
    stored, name = read(fields)
    return Storage(
        rest=rest,
        method=name,
        quantized=stored,
        only_experts=method == "mxfp4",
        skipped=_skipped(fields),
    )


def _skipped(fields: Fields) -> Modules:
    listed: list[object] = []
    for name in _SKIP_FIELDS:
        listed += fields.items(name, MAX_MODULES) or []
    dynamic = fields.inner("dynamic")  # GPTQModel: `-:pattern` skips
    listed += [f"re:{key[2:]}" for key in dynamic.names() if key.startswith("-:")]
    return modules_of(listed)


def _fp8(fields: Fields) -> tuple[Format, str]:
    """DeepSeek's blocks with a scale in fp32 each, else one scale for a matrix."""
    if not fields.has("weight_block_size"):
        return Format(bits=8, group_rows=0, scale_bits=32), "fp8"
    rows, columns = _block(fields, "weight_block_size")
    return (
        Format(bits=8, group_rows=rows, group_columns=columns, scale_bits=32),
        f"fp8 in blocks of {rows} by {columns}",
    )


def _block(fields: Fields, name: str) -> tuple[int, int]:
    """Rows and columns of a block that shares a scale."""
    sides = [side for side in fields.items(name) or [] if isinstance(side, int) and side > 0]
    if len(sides) != 2:
        raise ConfigError(f"config.json: {name} must be two positive integers")
    return sides[0], sides[1]


def _mxfp4(fields: Fields) -> tuple[Format, str]:
    return Format(bits=4, group_columns=32, scale_bits=8), "mxfp4 experts"


def _awq(fields: Fields) -> tuple[Format, str]:
    bits = fields.integer("bits", "w_bit")
    zero = 0 if fields.is_off("zero_point") else bits
    columns = _group(fields, "group_size", "q_group_size")
    return Format(bits=bits, group_columns=columns, zero_bits=zero), f"AWQ {bits} bits"


def _gptq(fields: Fields) -> tuple[Format, str]:
    """Its files have zero points, used or not, and an index of groups for the columns."""
    bits = fields.integer("bits")
    columns = _group(fields, "group_size")
    return (
        Format(bits=bits, group_columns=columns, zero_bits=bits, column_bits=32),
        f"GPTQ {bits} bits",
    )


def _group(fields: Fields, *names: str) -> int:
    """Columns of a group; 0, and -1 in files: all."""
    if any(fields.is_exactly(name, -1) for name in names):
        return 0
    return fields.optional_integer(*names) or 0


def _bitsandbytes(fields: Fields) -> tuple[Format, str]:
    if fields.flag("load_in_8bit"):
        return Format(bits=8, scale_bits=32), "bitsandbytes 8 bits"
    if not fields.flag("load_in_4bit"):
        raise ConfigError("config.json: bitsandbytes has neither load_in_4bit nor load_in_8bit")
    # Doubly quantized: 8 bits a block of 64, and 32 bits for each 256 of these.
    double = fields.flag("bnb_4bit_use_double_quant")
    return Format(bits=4, group_columns=64, scale_bits=8 if double else 32), "bitsandbytes 4 bits"


def _compressed_tensors(fields: Fields) -> tuple[Format, str]:
    """The first group of config_groups; others are for parts of what it covers."""
    groups = fields.inner("config_groups")
    weights = None
    for name in groups.names():
        weights = groups.inner(name).inner("weights")
        if weights.has("num_bits"):
            return _compressed(weights, fields.text("format") or "")
    raise ConfigError("config.json: quantization_config has no config_groups with num_bits")


def _compressed(weights: Fields, packing: str) -> tuple[Format, str]:
    bits = weights.integer("num_bits")
    strategy = weights.text("strategy") or "tensor"
    kind = weights.text("type") or "int"
    text = f"compressed-tensors {'fp' if kind == 'float' else 'int'}{bits}"
    if strategy == "tensor":
        return Format(bits=bits, group_rows=0), text
    if strategy == "channel":
        return Format(bits=bits), text
    if strategy == "block":
        rows, columns = _block(weights, "block_structure")
        return Format(bits=bits, group_rows=rows, group_columns=columns), text
    columns = _group(weights, "group_size")
    if strategy == "tensor_group" or "nvfp4" in packing:
        return Format(bits=bits, group_columns=columns or 16, scale_bits=8, matrix_bits=32), text
    if "mxfp4" in packing:
        return Format(bits=bits, group_columns=columns or 32, scale_bits=8), text
    if strategy != "group":
        raise ConfigError(
            f"config.json: strategy {one_line(repr(strategy), 40)} of compressed-tensors "
            "is not known: give --dtype"
        )
    zero = bits if weights.is_off("symmetric") else 0
    return Format(bits=bits, group_columns=columns, zero_bits=zero), text


def _modelopt(fields: Fields) -> tuple[Format, str]:
    inner = fields.inner("quantization")
    algorithm = (fields.text("quant_algo") or inner.text("quant_algo") or "").upper()
    if algorithm.startswith("FP8"):
        return Format(bits=8, group_rows=0, scale_bits=32), "ModelOpt fp8"
    if algorithm == "NVFP4":
        columns = _group(fields, "group_size") or _group(inner, "group_size") or 16
        stored = Format(bits=4, group_columns=columns, scale_bits=8, matrix_bits=64)
        return stored, "ModelOpt nvfp4"
    raise ConfigError(
        f"config.json: quant_algo {one_line(repr(algorithm), 40)} is not known: give --dtype"
    )


_METHODS: Mapping[str, Callable[[Fields], tuple[Format, str]]] = {
    "fp8": _fp8,
    "fbgemm-fp8": lambda fields: (Format(bits=8, scale_bits=32), "fp8"),
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
}
