"""The share of a checkpoint that a process has read, counted in its server's loader while it loads.

vLLM and SGLang have loaders of one shape: one method finds the files, one yields the tensors.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

_LOADER = "DefaultModelLoader"
_FILES, _WEIGHTS = "_prepare_weights", "_get_weights_iterator"


class WeightsRead:
    """Counted on the server's thread, read from the publisher's.

    Other loaders (dummy weights, a shard for each rank, tensors streamed from a store) and other
    versions are not counted; a figure that cannot be had is None.
    """

    def __init__(self, module: str) -> None:
        """module: of the server's loader; not imported before something is loaded."""
        self.read_bytes: int | None = None
        self.file_bytes: int | None = None
        """Size of the files."""
        self._module = module
        self._loader: Any = None
        self._replaced: dict[str, tuple[Any, Any]] = {}

    def begin(self) -> None:
        """The model is about to be loaded."""
        try:
            self._loader = getattr(import_module(self._module), _LOADER)
            self._replace(_FILES, self._counting_files)
            self._replace(_WEIGHTS, self._counting_weights)
        except (ImportError, AttributeError):
            self.end()

    def end(self) -> None:
        """It was loaded: put the loader's methods back, but for those that others replaced."""
        for name, (original, ours) in self._replaced.items():
            if vars(self._loader).get(name) is ours:
                setattr(self._loader, name, original)
        self._replaced = {}

    def _replace(self, name: str, wrapped: Callable[[Any], Any]) -> None:
        original = getattr(self._loader, name)
        ours = wrapped(original)
        setattr(self._loader, name, ours)
        self._replaced[name] = original, ours

    def _counting_files(self, original: Any) -> Any:
        def prepare_weights(loader: Any, *args: Any, **kwargs: Any) -> Any:
            prepared = original(loader, *args, **kwargs)
            self._found(prepared)
            return prepared

        return prepare_weights

    def _counting_weights(self, original: Any) -> Any:
        def weights(loader: Any, *args: Any, **kwargs: Any) -> Any:
            return self._counted(original(loader, *args, **kwargs))

        return weights

    def _found(self, prepared: Any) -> None:
        """prepared: a folder, its files, and what kind they are."""
        try:
            size = sum(os.path.getsize(file) for file in prepared[1])
        except Exception:  # whatever another version returns, it must load its weights
            return
        if not self._replaced:  # it was put back inside a wrapper of others
            return
        self.file_bytes = (self.file_bytes or 0) + size
        self.read_bytes = self.read_bytes or 0

    def _counted(self, weights: Iterator[Any]) -> Iterator[Any]:
        """weights: names with tensors."""
        for weight in weights:
            self._read(weight)
            yield weight

    def _read(self, weight: Any) -> None:
        if self.read_bytes is not None and self._replaced:
            try:
                self.read_bytes += int(weight[-1].nbytes)
            except Exception:  # likewise
                self.read_bytes = None
