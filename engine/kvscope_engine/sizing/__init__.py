"""Bytes of a model and blocks that fit: plain arithmetic, no torch."""

from kvscope_engine.sizing.config_json import ConfigError, read_config
from kvscope_engine.sizing.dtypes import Dtype, parse_dtype
from kvscope_engine.sizing.memory import MainMemory, MeasuredDevice, PoolSizeError
from kvscope_engine.sizing.pool import Footprint, PoolSize, PoolSizer
from kvscope_engine.sizing.units import format_bytes, parse_bytes

__all__ = [
    "ConfigError",
    "Dtype",
    "Footprint",
    "MainMemory",
    "MeasuredDevice",
    "PoolSize",
    "PoolSizeError",
    "PoolSizer",
    "format_bytes",
    "parse_bytes",
    "parse_dtype",
    "read_config",
]
