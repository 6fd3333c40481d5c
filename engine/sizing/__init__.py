"""How many bytes a model takes and how many blocks fit: plain arithmetic, no torch."""

from engine.sizing.config_json import ConfigError, read_config
from engine.sizing.dtypes import Dtype, parse_dtype
from engine.sizing.errors import PoolSizeError
from engine.sizing.gpus import GPUS, find_gpu
from engine.sizing.memory import MainMemory, MeasuredDevice
from engine.sizing.plan import Budget, Plan, PoolMemory, Settings
from engine.sizing.pool import Footprint, PoolSize, PoolSizer
from engine.sizing.shape import ModelShape, shape_from_config, shape_from_numbers
from engine.sizing.units import format_bytes, parse_bytes
from engine.sizing.weights import Parameters

__all__ = [
    "GPUS",
    "Budget",
    "ConfigError",
    "Dtype",
    "Footprint",
    "MainMemory",
    "MeasuredDevice",
    "ModelShape",
    "Parameters",
    "Plan",
    "PoolMemory",
    "PoolSize",
    "PoolSizeError",
    "PoolSizer",
    "Settings",
    "find_gpu",
    "format_bytes",
    "parse_bytes",
    "parse_dtype",
    "read_config",
    "shape_from_config",
    "shape_from_numbers",
]
