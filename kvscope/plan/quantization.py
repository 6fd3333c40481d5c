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
    method = _method(fields)
    read = _METHODS.get(method)
    if read is None:
        known = ", ".join(sorted(_METHODS))
        raise ConfigError(
            f"config.json: quantization method {one_line(repr(method), 60)} is not known "
            f"({known} are): give --dtype"
        )
    mixed = _mixed(fields)
    stored, name = (None, "mixed precision") if mixed else read(fields)
    return Storage(
        rest=rest,
        method=name,
        quantized=stored,
        only_experts=method == "mxfp4",
        skipped=_skipped(fields),
        mixed=mixed,
    )


def _method(fields: Fields) -> str:
    """The name of the method; ModelOpt's own file gives none."""
    method = (fields.text("quant_method") or "").lower().replace("_", "-")
    algorithm = fields.text("quant_algo") or fields.inner("quantization").text("quant_algo")
    return "modelopt" if method.startswith("modelopt") or (algorithm and not method) else method


def kv_dtype_of(config: Mapping[str, object]) -> Dtype | None:
    """The type in which vLLM keeps K and V if none is asked for; None: that of the computation.

    config: a quantization_config. Source: vLLM 0.32, get_kv_cache_quant_algo_string for ModelOpt,
    and Attention for compressed-tensors, where any scheme means fp8.
    """
    fields = Fields(config, {})
    method, inner = _method(fields), fields.inner("quantization")
    if method == "compressed-tensors":
        return Dtype.FP8 if fields.inner("kv_cache_scheme").names() else None
    if method != "modelopt":
        return None
    for part in (inner, fields):
        scheme = part.inner("kv_cache_scheme")
        if scheme.names():
            return _scheme(scheme)
    name = "kv_cache_quant_algo"
    algorithm = inner.text(name) or inner.text("kv_cache_scheme") or fields.text(name)
    return {"fp8": Dtype.FP8, "nvfp4": Dtype.NVFP4}.get((algorithm or "").lower())


def _scheme(scheme: Fields) -> Dtype | None:
    if scheme.text("type") != "float":
        return None
    if scheme.is_exactly("num_bits", 8) and scheme.is_off("dynamic"):
        return Dtype.FP8
    return Dtype.NVFP4 if scheme.is_exactly("num_bits", 4) else None


def _mixed(fields: Fields) -> tuple[tuple[Modules, Format], ...]:
    """Formats by the modules that have them; none where one format is for all."""
    inner = fields.inner("quantization")
    layers = fields.inner("quantized_layers")
    if not layers.names():
        layers = inner.inner("quantized_layers")
    by_format: dict[Format, list[object]] = {}
    for name in layers.names():
        own = layers.inner(name)
        stored, _ = _algorithm(own.text("quant_algo") or "", _group(own, "group_size"))
        by_format.setdefault(stored, []).append(name)
    groups = fields.inner("config_groups")
    for name in groups.names() if not by_format and len(groups.names()) > 1 else ():
        weights = groups.inner(name).inner("weights")
        if weights.has("num_bits"):
            packing = groups.inner(name).text("format") or fields.text("format") or ""
            targets = groups.inner(name).items("targets", MAX_MODULES) or ["Linear"]
            by_format.setdefault(_compressed(weights, packing)[0], []).extend(targets)
    found = [(modules_of(names), stored) for stored, names in by_format.items()]
    return tuple(sorted(found, key=lambda each: each[0].every))


def _skipped(fields: Fields) -> Modules:
    listed: list[object] = []
    for name in _SKIP_FIELDS:
        for part in (fields, fields.inner("quantization")):
            listed += part.items(name, MAX_MODULES) or []
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
    algorithm = fields.text("quant_algo") or inner.text("quant_algo") or ""
    return _algorithm(algorithm, _group(fields, "group_size") or _group(inner, "group_size"))


def _algorithm(name: str, columns: int) -> tuple[Format, str]:
    """ModelOpt's algorithms; columns: of a group, 0 where that is the algorithm's own."""
    algorithm = name.upper()
    if algorithm == "MXFP8":
        return Format(bits=8, group_columns=columns or 32, scale_bits=8), "ModelOpt mxfp8"
    if algorithm == "FP8_PB_WO":
        return Format(bits=8, group_rows=_SIDE, group_columns=_SIDE, scale_bits=32), "ModelOpt fp8"
    if algorithm.startswith("FP8"):
        return Format(bits=8, group_rows=0, scale_bits=32), "ModelOpt fp8"
    if algorithm.endswith("NVFP4"):
        stored = Format(bits=4, group_columns=columns or 16, scale_bits=8, matrix_bits=64)
        return stored, "ModelOpt nvfp4"
    raise ConfigError(
        f"config.json: quant_algo {one_line(repr(algorithm), 40)} is not known: give --dtype"
    )


_SIDE = 128
"""Rows and columns of ModelOpt's blocks."""
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
