"""Bytes of a model's weights on their device."""

from collections.abc import Iterable

from torch import Tensor, nn


def parameter_bytes(model: nn.Module) -> int:
    """What the checkpoint brought; tied ones once."""
    return _storage_bytes(model.parameters())


def buffer_bytes(model: nn.Module) -> int:
    """Other tensors of the model: tables of rotary angles, mostly."""
    return _storage_bytes(model.buffers())


def weight_bytes(model: nn.Module) -> int:
    """Parameters and buffers."""
    return parameter_bytes(model) + buffer_bytes(model)


def _storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Of the distinct storages: tied tensors and views count once."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
