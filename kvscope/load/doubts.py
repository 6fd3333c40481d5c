"""What a server said that cannot be true: counted, with the first example of each kind."""

from typing import Protocol


class Doubt(Protocol):
    def __call__(self, what: str, example: str) -> None:
        """what: of a closed set, such as `Retry-After`."""
        ...


class Doubts:
    """Of one run."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}

    def __call__(self, what: str, example: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
        self._examples.setdefault(what, example)

    @property
    def notes(self) -> list[str]:
        """A line for each kind, for the report."""
        return [
            f"{what} cannot be true and is not counted, in {count:,} answer(s): "
            f"the first is {self._examples[what]}"
            for what, count in self._counts.items()
        ]
