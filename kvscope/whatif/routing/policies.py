"""Policies of a router: which replica gets a request. Nothing is drawn at random.

Between equals the turn decides: it begins with another replica for each request.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import count

from kvscope.options.routing import Policy
from kvscope.whatif.routing.replica import Replica
from kvscope.whatif.routing.workload import Request

LOAD_WEIGHT = 0.5
"""A replica as busy as the busiest one has to hold this share of a prompt more than an idle one."""

Place = Callable[[Request, Sequence[Replica]], int]
"""Returns the number of a replica; called once for each call, in order of arrival."""


def placing(policy: Policy, prefix_blocks: int) -> Place:
    """A router that begins; prefix_blocks: leading blocks whose names prefix-hash looks at."""
    return _MAKERS[policy](prefix_blocks)


def _round_robin(prefix_blocks: int) -> Place:
    turns = count()
    return lambda request, replicas: next(turns) % len(replicas)


def _least_loaded(prefix_blocks: int) -> Place:
    turns = count()

    def place(request: Request, replicas: Sequence[Replica]) -> int:
        turn, number = next(turns), len(replicas)
        order = [at % number for at in range(turn, turn + number)]
        return min(order, key=lambda at: replicas[at].outstanding)

    return place


def _kv_aware(prefix_blocks: int) -> Place:
    """The longest match less the load, both as shares."""
    turns = count()

    def place(request: Request, replicas: Sequence[Replica]) -> int:
        turn, number = next(turns), len(replicas)
        whole = max(1, len(request.names))
        busiest = max(1, max(replica.outstanding for replica in replicas))

        def score(at: int) -> float:
            replica = replicas[at]
            matched = replica.prefix(request.names) / whole
            return matched - LOAD_WEIGHT * replica.outstanding / busiest

        return max([at % number for at in range(turn, turn + number)], key=score)

    return place


def _prefix_hash(prefix_blocks: int) -> Place:
    turns = count()

    def place(request: Request, replicas: Sequence[Replica]) -> int:
        turn = next(turns)
        if not request.names:  # shorter than a block: nothing that could be found
            return turn % len(replicas)
        return _hashed(list(request.names[:prefix_blocks])) % len(replicas)

    return place


def _by_session(prefix_blocks: int) -> Place:
    return lambda request, replicas: _hashed(request.session) % len(replicas)


def _as_recorded(prefix_blocks: int) -> Place:
    return lambda request, replicas: request.recorded_on


_MAKERS: Mapping[Policy, Callable[[int], Place]] = {
    Policy.ROUND_ROBIN: _round_robin,
    Policy.LEAST_LOADED: _least_loaded,
    Policy.PREFIX_HASH: _prefix_hash,
    Policy.KV_AWARE: _kv_aware,
    Policy.SESSION: _by_session,
    Policy.RECORDED: _as_recorded,
}


def _hashed(key: object) -> int:
    """The same in every process, unlike `hash`."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest())
