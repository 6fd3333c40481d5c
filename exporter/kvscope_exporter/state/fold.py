"""The base of all folds, state machines that know no reader, and the folds of an engine."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar, get_args

from kvscope_events.events import Batch, EngineEvent

Handlers = dict[type[Any], Callable[[Any], None]]
"""Event type to bound method: one look-up per event, while a match would compare type by type."""
METHODS = {
    event: re.sub("(?=[A-Z])", "_", f"on{event.__name__}").lower()
    for event in get_args(EngineEvent)
}
"""By type of event: the method that takes it, as `on_pool_created`."""


def handlers_of(owner: object) -> Handlers:
    """Its methods for events, by their type."""
    return {e: getattr(owner, name) for e, name in METHODS.items() if hasattr(owner, name)}


class Fold:
    """Applies events in order, and skips those without a handler.

    A method named for an event is its handler, as `on_pool_created` for PoolCreated.

    A fold is made without arguments and is a `Listener`.
    """

    name: ClassVar[str]
    """Value of the label `fold`; unique."""

    def __init__(self, handlers: Handlers | None = None) -> None:
        """handlers: those with other names."""
        self.handlers = {**handlers_of(self), **(handlers or {})}
        self.batch = Batch(0, 0, [])
        """The batch being applied, for its times: `time_ns` for intervals within the stream,
        `arrived_ns` for comparisons with our clock."""

    def apply(self, event: EngineEvent) -> None:
        """Apply one event."""
        handler = self.handlers.get(type(event))
        if handler is not None:
            handler(event)

    def on_batch(self, batch: Batch) -> None:
        """Apply one step's events."""
        self.batch = batch
        get = self.handlers.get
        for event in batch.events:
            handler = get(type(event))
            if handler is not None:
                handler(event)

    def on_gap(self) -> None:
        """Batches were lost before the next one: state that depends on them is now unknown."""

    @property
    def wants_snapshot(self) -> bool:
        """Whether it gave up state of its own accord, and needs the pool's to go on."""
        return False

    @property
    def num_pending(self) -> int:
        """Requests and sequences remembered until they end, or until `on_gap` forgets them."""
        return 0


F = TypeVar("F", bound=Fold)


class Folds:
    """Folds by their class: `folds[Ledger]` is the ledger."""

    def __init__(self, kinds: Iterable[type[Fold]]) -> None:
        self._folds: dict[type[Fold], Fold] = {kind: kind() for kind in dict.fromkeys(kinds)}

    def __getitem__(self, kind: type[F]) -> F:
        fold = self._folds[kind]
        assert isinstance(fold, kind)
        return fold

    def only(self, kinds: Iterable[type[Fold]]) -> "Folds":
        """The same folds, but only of these kinds: a KeyError for any other."""
        some = Folds(())
        some._folds = {kind: self._folds[kind] for kind in kinds}
        return some

    def __iter__(self) -> Iterator[Fold]:
        return iter(self._folds.values())
