"""The waterfall of a fleet equals plain loops over replicas that hold multisets of names."""

from collections import Counter, OrderedDict
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from exporter.fold.fleet import Steps, Waterfall

TREE = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
"""Places in a tree of prompts: a name is a place, and its path are its ancestors and itself."""
PATHS = st.sampled_from([place for place in TREE if place]).map(
    lambda place: [place[: depth + 1] for depth in range(len(place))]
)
NAMES = st.lists(st.sampled_from(TREE), max_size=5)
SLOTS = st.integers(0, 2)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("look_up"), SLOTS, PATHS),
        st.tuples(st.sampled_from(["store", "remove", "replace"]), SLOTS, NAMES),
        st.tuples(st.sampled_from(["clear", "restart"]), SLOTS, st.just([])),
    ),
    max_size=30,
)
TIERS = (1, 2, 3, 5)


class Tier:
    """A plain LRU of names; a path is touched from its end, so that its root stays longest."""

    def __init__(self, blocks):
        self.blocks, self.names = blocks, OrderedDict()

    def prefix(self, path):
        return len(list(takewhile(self.names.__contains__, path)))

    def touch(self, path):
        for name in reversed(path):
            self.names[name] = None
            self.names.move_to_end(name)
        while len(self.names) > self.blocks:
            self.names.popitem(last=False)


class Oracle:
    """Replicas as multisets, and plain loops over them."""

    def __init__(self):
        self.held = [Counter() for _ in range(3)]
        self.tiers = [Tier(blocks) for blocks in TIERS]
        self.tier_hits = [0] * len(TIERS)
        self.ever = set()
        self.sums = Counter()

    def own(self, slot, path):
        return len(list(takewhile(lambda name: self.held[slot][name], path)))

    def look_up(self, slot, path):
        own = self.own(slot, path)
        best = max(self.own(other, path) for other in range(3))
        anywhere = len(list(takewhile(lambda n: any(h[n] for h in self.held), path)))
        seen = max(anywhere, len(list(takewhile(self.ever.__contains__, path))))
        for number, tier in enumerate(self.tiers):
            self.tier_hits[number] += max(own, tier.prefix(path))
            tier.touch(path)
        self.ever.update(path)
        self.sums.update(own=own, best=best, anywhere=anywhere, seen=seen, asked=len(path))
        return own

    def store(self, slot, names):
        self.held[slot].update(names)

    def remove(self, slot, names):
        for name in names:
            self.held[slot][name] -= self.held[slot][name] > 0

    def replace(self, slot, names):
        self.held[slot] = Counter(names)


@given(ACTIONS)
def test_it_equals_plain_loops(actions):
    oracle, waterfall = Oracle(), Waterfall(horizon=1 << 10, sizes=TIERS)
    holders = waterfall.holders
    slots = [holders.join() for _ in range(3)]
    for action, number, names in actions:
        slot = slots[number]
        if action == "look_up":
            waterfall.look_up(names, oracle.look_up(number, names))
        elif action == "clear":
            oracle.replace(number, [])
            holders.clear(slot)
        elif action == "restart":
            oracle.replace(number, [])
            holders.leave(slot)
            slots[number] = holders.join()
        else:
            getattr(oracle, action)(number, names)
            getattr(holders, action)(slot, names)
        held = [+counter for counter in oracle.held]
        assert holders.resident_blocks == sum(map(Counter.total, held))
        assert holders.distinct_names == len(set().union(*held))
        assert [holders.resident_of(s) for s in slots] == list(map(Counter.total, held))
    assert waterfall.totals == Steps(**oracle.sums)
    assert list(waterfall.asked.hit_blocks) == oracle.tier_hits


def test_a_replica_that_knows_more_than_we_do_is_believed():
    waterfall = Waterfall()
    waterfall.holders.join()
    waterfall.look_up(["a", "b", "c"], own=2)  # of its state we know nothing
    assert waterfall.totals == Steps(own=2, best=2, anywhere=2, seen=2, asked=3)
