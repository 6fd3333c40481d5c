"""Methods of one worker that call an observer before and after they run."""

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kvscope_events.vocabulary import StartPhase

PHASES: Mapping[str, StartPhase] = {
    "load_model": "weights",
    "determine_available_memory": "profile",
    "initialize_from_config": "pool",
    "compile_or_warm_up_model": "warm_up",
}
"""By the worker's method with which each part of its start begins; the process begins one, and its
device another."""
LAST = "compile_or_warm_up_model"
"""Its return ends the start; in a worker without it, that of `initialize_from_config`."""
Guard = Callable[..., None]
"""Takes the moment in words, a function and its arguments; calls the function, and never raises."""


class Hooks:
    """Replaces methods of the instance, without a reference to it, and puts them back."""

    def __init__(self, worker: "weakref.ref[Any]", guard: Guard) -> None:
        self._worker = worker
        self._guard = guard
        self._hooked: dict[str, Any] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._hooked

    def add(self, name: str, before: Callable[[], None], after: Callable[..., None]) -> None:
        """after: called with the method's arguments. Raises AttributeError if there is no such
        method."""
        worker = self._worker()
        original = getattr(worker, name)
        # Kept without a reference to the worker, which would outlive its engine in a cycle.
        function = getattr(original, "__func__", None)
        call: Callable[..., Any] = original
        if function is not None:
            call = functools.partial(_call, function, self._worker)
        del original

        @functools.wraps(function or call)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            self._guard(f"before {name}", before)
            result = call(*args, **kwargs)
            self._guard(f"after {name}", after, *args, **kwargs)
            return result

        setattr(worker, name, hooked)
        self._hooked[name] = hooked

    def remove(self) -> None:
        """Put the methods back, except those that other code has replaced since."""
        worker = self._worker()
        for name, hooked in self._hooked.items():
            if worker is not None and vars(worker).get(name) is hooked:
                delattr(worker, name)


def _call(function: Any, owner: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
    return function(owner(), *args, **kwargs)
