"""The only caller of NVML: calls go by name; failures are classified and counted."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, cast

import pynvml

from kvscope_exporter.catalogue.gpu_sets import NVML_CODES

logger = logging.getLogger(__name__)

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
DRIVER_REPLACED = 18
NO_DEVICES = 28
"""NVML's GPU_NOT_FOUND, and ours for a count of zero."""

REFUSALS = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, 21, 25, 26})
"""Codes for readings that the device does not have: they are left out, without an error."""
OLDER_DRIVER = frozenset({FUNCTION_NOT_FOUND, 25})
"""The call, or this version of its struct, is newer than the driver."""
LOST = frozenset({15, 16})
"""Codes for a GPU that is gone or needs a reset."""
DOWN = frozenset({1, 9, LIBRARY_NOT_FOUND, DRIVER_REPLACED, NO_DEVICES})
"""Codes after which the library has to be reinitialised."""

Nvml = Any
"""A handle of pynvml's: a device or an event set."""
Place = int | tuple[int, int] | None
"""The target of a call: a GPU by index, one of its MIG devices, or the library (None)."""


class NvmlCallError(Exception):
    """A call failed."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"nvml{call}: {code_name(code)} ({code})")
        self.call = call
        self.code = code


class DeviceLostError(NvmlCallError):
    """This GPU does not answer; the others may."""


class NvmlDownError(NvmlCallError):
    """No call succeeds until the library is initialised again."""


class Calls:
    """Calls within one initialisation. A call that a device refuses is not repeated on it."""

    def __init__(self, count_error: Callable[[str, int], None]) -> None:
        self._count_error = count_error
        self.refused: dict[tuple[Place, str], int] = {}
        """NVML's code by place and call."""

    def call(
        self,
        name: str,
        *arguments: Any,
        place: Place = None,
        expected: int | None = None,
        **named: Any,
    ) -> Any:
        """The answer. Raises NvmlCallError, or a subclass if the failure has a specific meaning.

        A failure with the code `expected` is an answer as well: neither counted nor remembered.
        """
        key = (place, name)
        if key in self.refused:
            raise NvmlCallError(name, self.refused[key])
        try:
            return getattr(pynvml, _FUNCTIONS.get(name, f"nvml{name}"))(*arguments, **named)
        except pynvml.NVMLError as error:
            code = int(cast(Any, error).value)
        except (pynvml.NVMLLibraryMismatchError, AttributeError):
            code = FUNCTION_NOT_FOUND  # the driver, or the binding, is older than the call
        if code == expected:
            raise NvmlCallError(name, code)
        if code in REFUSALS:
            self.refused[key] = code
            level = logging.INFO if code == NO_PERMISSION else logging.DEBUG
            logger.log(level, "GPU %s: nvml%s: %s", place, name, code_name(code))
            raise NvmlCallError(name, code)
        raise self.failure(name, code)

    def failure(self, name: str, code: int) -> NvmlCallError:
        """Count a failure; returns the most specific exception for its code."""
        self._count_error(name, code)
        if code in LOST:
            return DeviceLostError(name, code)
        return NvmlDownError(name, code) if code in DOWN else NvmlCallError(name, code)

    def ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        """The answer, or None if the call fails; the loss of a device still raises."""
        try:
            return self.call(name, *arguments, **named)
        except (DeviceLostError, NvmlDownError):
            raise
        except NvmlCallError:
            return None

    def ask_first(self, names: Iterable[str], *arguments: Any, place: Place) -> Any:
        """The answer of the first of several versions of a call that the driver has."""
        for name in names:
            answer = self.ask(name, *arguments, place=place)
            if answer is not None or self.refused.get((place, name)) not in OLDER_DRIVER:
                return answer
        return None


def binding_problem() -> str | None:
    """The problem with the Python binding, or None for NVIDIA's own."""
    if hasattr(pynvml, "_nvmlGetFunctionPointer"):
        return None
    return (
        f"{pynvml.__file__} is not nvidia-ml-py: a package named pynvml hides it; "
        "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py"
    )


def code_name(code: int) -> str:
    """The name of a return code in the label `code`."""
    return NVML_CODES.get(code, "other")


_FUNCTIONS = {
    "InitWithFlags": "nvmlInit",
    "DeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
}
"""Calls that pynvml names differently from the library."""
