"""The definition of a service: labels by which figures are summed and replicas compared."""

import re
from dataclasses import dataclass
from typing import Self

from kvscope_monitoring.identity import ENGINE, MODEL, SERVER, SERVICE, clause

PEERS = ("card", "role")
"""Labels by which replicas of one model differ: the card, and prefill or decode."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Scope:
    """A model in a place. A label that no series has costs nothing, so the defaults fit a fleet of
    one cluster without namespaces as well; clusters that share a ruler stay separate."""

    labels: tuple[str, ...] = SERVICE

    def __post_init__(self) -> None:
        for label in self.labels:
            if not _NAME.fullmatch(label):
                raise ValueError(f"--by: {label!r} is not the name of a label")
        if MODEL not in self.labels:
            raise ValueError(
                "--by: model_name has to be among the labels; objectives are a model's"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """A set from names separated by commas."""
        return cls(tuple(name.strip() for name in text.split(",")))

    @property
    def place(self) -> tuple[str, ...]:
        """The labels of the place, without the model."""
        return tuple(label for label in self.labels if label != MODEL)

    @property
    def model(self) -> str:
        """Labels of one model's replicas, for `by` and `on`; so are the next three."""
        return clause(*self.labels)

    @property
    def peers(self) -> str:
        """Labels of the replicas that are comparable."""
        return clause(*self.labels, *PEERS)

    @property
    def job(self) -> str:
        return clause(*self.place, "job")

    @property
    def server(self) -> str:
        return clause(*self.place, *SERVER)

    @property
    def host(self) -> str:
        """A server with the names by which people know it, if its target has them."""
        return clause(*self.place, *SERVER, "pod", "node")

    @property
    def engine(self) -> str:
        return clause(*self.place, *ENGINE)
