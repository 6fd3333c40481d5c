"""Replaces methods of SGLang's objects in two phases: find and check all, then wrap all.

Wrappers sit on the objects, so that to remove one is to delete an attribute. Only the class of
batches is patched as such: each step makes a new one.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Before = Callable[[Arguments, Keywords], Any]
"""Called with the call's arguments; what it returns is the note of `After`."""
After = Callable[[Any, Any, Arguments, Keywords], None]
"""Called with the note, the result, and the call's arguments."""


class UnknownMethodError(Exception):
    """A method that is not there, or has other parameters than those that an observer reads."""


class Found(NamedTuple):
    """A method that can be replaced."""

    target: Any
    method: str
    original: Callable[..., Any]
    before: Before | None
    after: After | None

    @property
    def name(self) -> str:
        return _name(self.target, self.method)


def found(
    target: Any,
    method: str,
    parameters: tuple[str, ...],
    before: Before | None = None,
    after: After | None = None,
) -> Found:
    """Raises UnknownMethodError unless its parameters begin with these; `|` separates names that
    releases have used for one parameter."""
    name = _name(target, method)
    original = getattr(target, method, None)
    if original is None:
        raise UnknownMethodError(f"looked for {name}, found no such method")
    try:
        names = tuple(inspect.signature(original).parameters)
    except (TypeError, ValueError) as error:
        raise UnknownMethodError(f"{name} does not reveal its parameters: {error}") from error
    known = len(names) >= len(parameters) and all(
        has in wanted.split("|") for has, wanted in zip(names, parameters, strict=False)
    )
    if not known:
        wanted = ", ".join(parameters)
        raise UnknownMethodError(f"looked for {name}({wanted}), found ({', '.join(names)})")
    return Found(target, method, original, before, after)


def _name(target: Any, method: str) -> str:
    owner = target if isinstance(target, type) else type(target)
    return f"{owner.__name__}.{method}"


class Patches:
    """The methods that are replaced now."""

    def __init__(self, fail: Callable[[BaseException, str], None]) -> None:
        """fail: called for an exception of ours, with the method's name; must not raise."""
        self.live = True
        self._fail = fail
        self._replaced: list[tuple[Found, Any, bool]] = []

    def covered(self) -> str:
        """A method that other code has replaced since, with our wrapper inside theirs; empty: none
        has been."""
        for one, wrapper, _ in self._replaced:
            if vars(one.target).get(one.method) is not wrapper:
                return one.name
        return ""

    def apply(self, methods: Iterable[Found]) -> None:
        """Replace these methods; if one cannot be, put all back and raise."""
        try:
            for one in methods:
                wrapper = self._wrapper(one)
                is_own = one.method in vars(one.target)  # else it is the class's
                setattr(one.target, one.method, wrapper)
                self._replaced.append((one, wrapper, is_own))
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Put back what is still ours; a wrapper inside that of others only passes calls on."""
        self.live = False
        for one, wrapper, is_own in reversed(self._replaced):
            if vars(one.target).get(one.method) is not wrapper:
                continue
            if is_own:
                setattr(one.target, one.method, one.original)
            else:
                delattr(one.target, one.method)
        self._replaced.clear()

    def _wrapper(self, one: Found) -> Callable[..., Any]:
        """The original is called exactly once, whatever ours does."""
        patches, original, where = self, one.original, one.method
        before, after = one.before, one.after

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            note = None
            if patches.live and before is not None:
                try:
                    note = before(args, kwargs)
                except Exception as error:
                    patches._fail(error, where)
            result = original(*args, **kwargs)
            if patches.live and after is not None:
                try:
                    after(note, result, args, kwargs)
                except Exception as error:
                    patches._fail(error, where)
            return result

        return functools.wraps(original)(wrapper)
