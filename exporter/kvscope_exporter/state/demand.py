"""Demand and service of tenants and adapters, in counters that are few and reassigned.

Space-saving (Metwally, Agrawal, El Abbadi 2005): a name without a counter takes over the lightest
one, with its weight as the error.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Demand:
    """Demand and service of one tenant or adapter since it got this counter."""

    name: str
    """The first digits of a tenant's hash, or NOBODY; an adapter's own name."""
    error_tokens: int = 0
    """Upper bound of its tokens before that."""
    requests: int = 0
    """Requests that have arrived."""
    running: int = 0
    waiting: int = 0
    """Requests that have neither run yet nor ended."""
    finished: int = 0
    failed: int = 0
    """Finished requests that ended in an error."""
    prompt_tokens: int = 0
    ended_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens of ended sequences, and those of them that were computed, not found: a prompt
    counts for each of its samples."""
    output_tokens: int = 0
    preemptions: int = 0
    scheduled: int = 0
    queued_ns: int = 0
    """Queue time of all scheduled requests."""
    answered: int = 0
    first_token_ns: int = 0
    """Time to first token of all answered requests."""

    @property
    def label(self) -> str:
        return self.name

    @property
    def credited_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def weight(self) -> int:
        return self.error_tokens + self.credited_tokens


class Counters:
    """The heaviest of all names."""

    def __init__(self, most: int) -> None:
        self.by_name: dict[str, Demand] = {}
        self.most = most

    @property
    def least_weight(self) -> int:
        """Upper bound of the tokens of a name without a counter; O(counters)."""
        if len(self.by_name) < self.most:
            return 0
        return min(demand.weight for demand in self.by_name.values())

    def has(self, demand: Demand) -> bool:
        """Whether it still has its counter."""
        return self.by_name.get(demand.name) is demand

    def take(self, name: str) -> tuple[Demand, Demand | None]:
        """The counter of a name, and whose it was if it had to be taken from another."""
        demand, former = self.by_name.get(name), None
        if demand is None:
            demand = Demand(name)
            if len(self.by_name) == self.most:
                former = min(self.by_name.values(), key=lambda each: each.weight)
                del self.by_name[former.name]
                demand.error_tokens = former.weight
            self.by_name[name] = demand
        return demand, former
