"""Wrappers around vLLM's methods: the original runs exactly once, and its exceptions pass.

Own code runs before and after it, guarded: its first exception switches the observer off. A wrapper
without an observer, or around another object than the observed one, only passes the call on.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kvscope_events.observers.log import warn

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

Method = Callable[..., Any]


class Site:
    """Holds the observer of this process for its wrappers."""

    __slots__ = ("began", "observer", "waiting")

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self.began = False
        """Whether an observer has started, or the reason why not has been reported."""
        self.waiting: list[Observer] = []
        """The observer that goes on before the next step; taken out once."""

    def admit(self, scheduler: Any) -> Observer | None:
        """On the engine's thread, between two steps: have the one that waits go on."""
        if not any(waiting.scheduler is scheduler for waiting in self.waiting):
            return None
        try:
            self.observer = observer = self.waiting.pop()
        except IndexError:  # it was withdrawn just now
            return None
        observer.begin()
        if not observer.live:
            self.observer = None
        return self.observer

    def foreign(self) -> None:
        """Blocks are handed out, and no scheduler of vLLM's own was ever made here."""
        self.began = True
        warn("off: this vLLM runs a scheduler that is not vLLM's own (--scheduler-cls)")


class Part:
    """Whether a method is called on this part of the observer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, observer: Any, called_on: Any) -> bool:
        return called_on is getattr(observer, self.name)


def source(mine: Callable[[Any, Any], bool]) -> str:
    """The test of a hook in a compiled wrapper, where its function is `_mine`."""
    return f"self is _observer.{mine.name}" if isinstance(mine, Part) else "_mine(_observer, self)"


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str) -> Any:
    """An argument of a call that may be given by place or by name; `self` is not counted."""
    return args[index] if index < len(args) else kwargs[name]


_WATCHED = """
    _observer = _site.observer
    if _observer is None or not ({mine}):
        return _original({arguments})
    _args, _note = ({by_place}), None
"""
_BEFORE = """
    try:
        _note = _before(_observer, _args, _named)
    except Exception as _error:
        _observer.fail(_error, _name)
        return _original({arguments})
"""
_AFTER = """
    _result = _original({arguments})
    if _observer.live:
        try:
            _after(_observer, _note, _result, _args, _named)
        except Exception as _error:
            _observer.fail(_error, _name)
    return _result
"""
"""The wrapper of a method of the pool, which is called for each block of a sequence that grows.

Its own names begin with `_`, so that none collides with vLLM's parameters."""


def watched(site: Site, hook: Hook, original: Method) -> Method:
    """For methods of the pool and the cache manager."""
    name, mine, before, after, clears = _parts(hook)
    if clears is None:
        names = {"_site": site, "_mine": mine, "_before": before, "_after": after, "_name": name}
        after_it = "    return _original({arguments})\n" if after is None else _AFTER
        body = _WATCHED.replace("{mine}", source(mine)) + (_BEFORE if before else "") + after_it
        exact = compiled(original, body, {**names, "_original": original, "_named": {}})
        if exact is not None:
            return exact

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = site.observer
        if observer is None or not mine(observer, self):
            return original(self, *args, **kwargs)
        note = None
        try:
            if before is not None:
                note = before(observer, args, kwargs)
        except Exception as error:
            observer.fail(error, name)
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        finally:
            if clears is not None:
                setattr(observer, clears, None)
        if after is not None and observer.live:
            try:
                after(observer, note, result, args, kwargs)
            except Exception as error:
                observer.fail(error, name)
        return result

    return wrapper


def entered(site: Site, hook: Hook, original: Method) -> Method:
    """For methods of the scheduler: while one runs, the pool may be between two states."""
    name, mine, before, after, clears = _parts(hook)
    opens = hook.opens
    # A step has several such calls: no frame of ours for each.
    part_of = operator.attrgetter(mine.name) if isinstance(mine, Part) else None

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = site.observer
        if observer is None and opens and site.waiting:
            observer = site.admit(self)
        if observer is None or not (part_of(observer) is self if part_of else mine(observer, self)):
            return original(self, *args, **kwargs)
        note = None
        observer.depth += 1
        observer.version += 1
        try:
            try:
                if before is not None:
                    note = before(observer, args, kwargs)
            except Exception as error:
                observer.fail(error, name)
            result = original(self, *args, **kwargs)
        finally:
            observer.depth -= 1
            if clears is not None:
                setattr(observer, clears, None)
        if after is not None and observer.live:
            try:
                after(observer, note, result, args, kwargs)
            except Exception as error:
                observer.fail(error, name)
        return result

    return wrapper


def _parts(hook: Hook) -> tuple[str, Any, Any, Any, str | None]:
    return f"{hook.owner}.{hook.method}", hook.mine, hook.before, hook.after, hook.clears


class Hook(NamedTuple):
    """A method, and our functions around it."""

    module: str
    owner: str
    method: str
    parameters: tuple[str, ...]
    since: str
    required: bool
    mine: Callable[[Any, Any], bool]
    """Whether it is called on what the observer observes."""
    after: Callable[..., None] | None
    before: Callable[..., Any] | None = None
    clears: str | None = None
    """Attribute of the observer that holds only during the call."""
    wrap: Callable[..., Callable[..., Any]] = watched
    opens: bool = False
    """Whether it is only called between two steps, so that an observer may go on there."""


def compiled(original: Method, body: str, names: dict[str, Any]) -> Method | None:
    """A function with exactly the parameters of `original`; None if they cannot be written out.

    Passing `*args, **kwargs` on takes a quarter of a microsecond, more than all the rest of a
    wrapper, and such a method is called for every running request in every step.

    body: lines of source, in which `{arguments}` stands for all arguments by place, `{by_place}`
    for all but `self`, each with a comma behind it, and `{named}` for these by name. names: what it
    refers to. Only identifiers get into the source: default values are passed as objects.
    """
    parameters, arguments = [], []
    scope = dict(names)
    for parameter in inspect.signature(original).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name in names:
            return None
        text = parameter.name
        if parameter.default is not parameter.empty:
            scope[f"_default_of_{text}"] = parameter.default
            text += f"=_default_of_{text}"
        parameters.append(text)
        arguments.append(parameter.name)
    head = f"def wrapper({', '.join(parameters)}):\n"
    named = ", ".join(f"{argument}={argument}" for argument in arguments[1:])
    by_place = "".join(f"{argument}, " for argument in arguments[1:])
    texts = {"arguments": ", ".join(arguments), "by_place": by_place, "named": named}
    for key, text in texts.items():
        body = body.replace(f"{{{key}}}", text)
    exec(compile(head + body, "<kvscope>", "exec"), scope)
    return functools.update_wrapper(scope["wrapper"], original)
