"""A fleet's waterfall by plain loops over replicas that hold multisets of names."""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from itertools import takewhile


class Tier:
    """A plain LRU of names; a path is touched from its end, so that its root stays longest."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.names: OrderedDict[Hashable, None] = OrderedDict()

    def prefix(self, path: Sequence[Hashable]) -> int:
        return len(list(takewhile(self.names.__contains__, path)))

    def touch(self, path: Sequence[Hashable]) -> None:
        for name in reversed(path):
            self.names[name] = None
            self.names.move_to_end(name)
        while len(self.names) > self.blocks:
            self.names.popitem(last=False)


class Oracle:
    """Replicas are numbers."""

    def __init__(self, replicas: int, tiers: Sequence[int] = ()) -> None:
        self.held: list[Counter[Hashable]] = [Counter() for _ in range(replicas)]
        self.tiers = [Tier(blocks) for blocks in tiers]
        self.tier_hits = [0] * len(tiers)
        self.ever: set[Hashable] = set()
        self.sums: Counter[str] = Counter()

    def own(self, replica: int, path: Sequence[Hashable]) -> int:
        return len(list(takewhile(lambda name: self.held[replica][name], path)))

    def look_up(self, replica: int, path: Sequence[Hashable]) -> int:
        own = self.own(replica, path)
        best = max(self.own(other, path) for other in range(len(self.held)))
        anywhere = len(list(takewhile(lambda n: any(h[n] for h in self.held), path)))
        seen = max(anywhere, len(list(takewhile(self.ever.__contains__, path))))
        for number, tier in enumerate(self.tiers):
            self.tier_hits[number] += max(own, tier.prefix(path))
            tier.touch(path)
        self.ever.update(path)
        self.sums.update(own=own, best=best, anywhere=anywhere, seen=seen, asked=len(path))
        return own

    def store(self, replica: int, names: Iterable[Hashable]) -> None:
        self.held[replica].update(names)

    def remove(self, replica: int, names: Iterable[Hashable]) -> None:
        for name in names:
            self.held[replica][name] -= self.held[replica][name] > 0

    def replace(self, replica: int, names: Iterable[Hashable]) -> None:
        self.held[replica] = Counter(names)
