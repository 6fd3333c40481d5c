"""Messages between the ingress, the router in its process, and a replica."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvscope_events.events import BlockHash

Names = tuple[BlockHash, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the engine's API, as it came."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    names: Names = ()
    """The leading blocks of the prompt, for the router. They stay in its process."""

    def __reduce__(self) -> tuple[type["Call"], tuple[str, bytes, Mapping[str, str]]]:
        return Call, (self.path, self.body, self.headers)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a replica's answer; pieces of the body follow."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """On which the names of blocks depend. Equal on all replicas."""

    model_name: str
    block_size: int
    max_model_len: int
