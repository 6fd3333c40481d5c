"""Bytes of a model's weights on their device."""

from collections.abc import Iterable

from torch import Tensor, nn


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of the parameters; tied ones count once."""
    return _storage_bytes(model.parameters())


def buffer_bytes(model: nn.Module) -> int:
    """Bytes of the model's other tensors: tables of rotary angles, mostly."""
    return _storage_bytes(model.buffers())


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers."""
    return parameter_bytes(model) + buffer_bytes(model)


def _storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct storages: tied tensors and views count once."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
