"""Stand-in for SGLang's compiled kernels, which have no build for CPUs on PyPI.

Everything can be imported from it, and nothing called: that raises, with the name. SGLang calls
none of it with `--attention-backend torch_native --sampling-backend pytorch`.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

__version__ = "0.4.10"


class _Missing:
    """A function, class or constant of theirs; its attributes are missing as well."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{self.__name__}: this is a stand-in without kernels")

    def __getattr__(self, name: str) -> "_Missing":
        return _attribute(self.__name__, name)

    def __or__(self, other: Any) -> Any:
        return other  # in annotations

    __ror__ = __or__


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> _Missing:
        return _attribute(self.__name__, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below this one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def _attribute(owner: str, name: str) -> _Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Missing(f"{owner}.{name}")


def __getattr__(name: str) -> _Missing:
    return _attribute(__name__, name)


__path__: list[str] = []
sys.meta_path.insert(0, _Finder())
