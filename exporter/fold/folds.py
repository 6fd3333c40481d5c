"""The folds of one engine, one of each kind."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from exporter.fold.fold import Fold

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
        """The same folds, of these kinds alone: a KeyError for any other."""
        some = Folds(())
        some._folds = {kind: self._folds[kind] for kind in kinds}
        return some

    def __iter__(self) -> Iterator[Fold]:
        return iter(self._folds.values())
