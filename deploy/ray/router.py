"""Chooses the replica that holds the longest beginning of the prompt, less its load.

The rule is that of `kvscope whatif --policy kv-aware`, so that a replay says what to expect. A
prompt that no replica has, and a request that the chosen replica has no place for, go to one of
two replicas drawn at random, as with Ray's own router.
"""

from typing import Any

from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import (
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)

from deploy.ray.caches import Caches, caches_of
from deploy.ray.call import Call, Names
from kvscope.whatif.routing.policies import LOAD_WEIGHT


class CacheAwareRouter(LocalityMixin, MultiplexMixin, RequestRouter):
    """Runs in the process of the ingress. Without FIFOMixin each request gets its own choice."""

    def initialize_state(self, load_weight: float = LOAD_WEIGHT) -> None:
        """load_weight: share of a prompt that the busiest replica has to hold more than an idle
        one."""
        self._load_weight = load_weight

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Called by Serve whenever replicas have come or gone."""
        super().update_replicas(replicas)
        self._caches.follow(
            {
                replica.replica_id.unique_id: replica.replica_metadata
                for replica in replicas
                if replica.replica_metadata
            }
        )

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks: the best one, if its cache has something, then two drawn at random."""
        drawn = await PowerOfTwoChoicesRequestRouter.choose_replicas(
            self, candidate_replicas, pending_request
        )
        names = _names_of(pending_request)
        best = self._best(candidate_replicas, names) if names else None
        return drawn if best is None else [[best], *drawn]

    @property
    def _caches(self) -> Caches:
        return caches_of(self._deployment_id.app_name, self._deployment_id.name)

    def _best(self, candidates: list[RunningReplica], names: Names) -> RunningReplica | None:
        queues = [self.replica_queue_len_cache.get(each.replica_id) or 0 for each in candidates]
        busiest = max(1, *queues)
        held = [self._caches.held(each.replica_id.unique_id, names) for each in candidates]

        def score(at: int) -> float:
            return held[at] / len(names) - self._load_weight * queues[at] / busiest

        at = max(range(len(candidates)), key=score)
        return candidates[at] if held[at] else None


def _names_of(pending_request: PendingRequest | None) -> Names:
    arguments: list[Any] = [] if pending_request is None else pending_request.args
    return next((each.names for each in arguments if isinstance(each, Call)), ())
