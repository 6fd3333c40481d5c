"""Turns whatever a library raises over a corrupt checkpoint into one of our errors.

transformers, tokenizers and safetensors raise whatever their code happens to run into: bare
Exception, AttributeError, ZeroDivisionError, panics of Rust, errors of classes that they do not
export.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kvscope_engine.model.errors import CheckpointError, ModelTooLargeError, first_line
from kvscope_engine.model.torch_errors import device_out_of_memory
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError

_PANIC = "PanicException"
"""Raised by Rust behind Python; a BaseException that is in no importable module."""


@contextmanager
def reported(model: str, problem: str, remedy: str) -> Iterator[None]:
    """Raises CheckpointError with `problem` and, in brackets, the library's message.

    Our own errors pass as they are. Lack of memory becomes a ModelTooLargeError.
    """
    try:
        with device_out_of_memory():
            yield
    except CheckpointError:
        raise
    except (DeviceOutOfMemoryError, MemoryError) as error:
        raise ModelTooLargeError(
            model, "memory ran out while loading", "choose a smaller model or free memory"
        ) from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise CheckpointError(model, f"{problem} ({first_line(error)})", remedy) from error
