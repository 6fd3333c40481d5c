"""Top prefixes, against plain lists; that tokens add up, series never fall, and memory ends."""

from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import PoolCreated, PrefixLookup
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.prefix_table import label_of
from kvscope_exporter.state.cache.prefixes import Prefixes
from kvscope_exporter.state.shown import REMEMBERED, SHOWN, TopOwners
from tests.exporter import cache_oracle as oracle
from tests.exporter.cache_record import (
    BLOCK_SIZE,
    LOST,
    Life,
    folded,
    lives,
    name_of,
    names_of,
)
from tests.exporter.stream import batch_of

SYSTEM, TALK, OTHER_TALK, QUESTION = [1] * 10, [2] * 4, [3] * 6, [4] * 3


@given(life=lives(), window=st.sampled_from([3, 100]), counters=st.sampled_from([1, 2, 5, 1000]))
def test_the_table_is_that_of_plain_rows(life: Life, window: int, counters: int) -> None:
    if LOST in life.record:  # in which order names fall out of a gap is not known
        window = 100
    cache = folded(life.record, window=window, counters=counters)
    rows, _ = oracle.prefixes(oracle.reaches(life.record, window), counters)
    table = cache.prefixes.table
    table.check()
    assert oracle.counted(table) == sorted(rows, key=lambda row: row.name)
    full = len(rows) == counters
    assert table.least_weight == (min(row.weight for row in rows) if full else 0)


@given(life=lives())
def test_every_token_belongs_to_one_prefix(life: Life) -> None:
    cache = folded(life.record)
    prefixes = cache.prefixes.table.prefixes.values()
    assert sum(p.saved_tokens for p in prefixes) == cache.hit_tokens["first"]
    assert sum(p.lost_tokens for p in prefixes) == cache.regret.tokens


@given(life=lives(), counters=st.sampled_from([1, 3, 8]))
def test_the_errors_bound_what_was_credited_before(life: Life, counters: int) -> None:
    """All that was credited to a name is at least what its counter says, and at most its error
    more; without a counter, at most the least weight.
    """
    table = folded(life.record, counters=counters).prefixes.table
    _, credits = oracle.prefixes(oracle.reaches(life.record, 1000), counters)
    total = sum(tokens for _, tokens in credits)
    for name in {name for name, _ in credits}:
        credited = sum(tokens for other, tokens in credits if other == name)
        prefix = table.prefixes.get(name)
        if prefix is None:
            assert credited <= table.least_weight <= total / counters
        else:
            assert prefix.saved_tokens + prefix.lost_tokens <= credited <= prefix.weight
            assert prefix.error_tokens <= total / counters


@given(
    lookups=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), max_size=120),
    counters=st.sampled_from([3, 6, 50]),
)
def test_no_series_ever_falls_and_each_token_is_in_one(
    lookups: list[tuple[int, int]], counters: int
) -> None:
    prefixes = Prefixes(counters)
    highest: dict[str, int] = {}
    hits = 0
    for number, blocks in lookups:
        path = names_of([number] * blocks)
        prefixes.look_up(path, blocks, [], block_size=BLOCK_SIZE, time_ns=0)
        hits += blocks * BLOCK_SIZE
        series = {**prefixes.shown.tokens, "other": prefixes.shown.other}
        assert len(series) <= SHOWN + 1
        for label, tokens in series.items():
            assert tokens >= highest.get(label, 0)
            highest[label] = tokens
        assert sum(series.values()) + sum(prefixes.shown.left.values()) == hits
    prefixes.table.check()


def asked(cache: Cache, path: list[int], hit_blocks: int) -> None:
    tokens = (len(path) + 1) * BLOCK_SIZE
    cache.on_batch(batch_of(PrefixLookup(0, tokens, names_of(path), hit_blocks)))


def test_hits_without_names_are_in_other() -> None:
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(99, BLOCK_SIZE, 0)))
    cache.on_batch(batch_of(PrefixLookup(0, 50, [], 3)))
    assert cache.prefixes.shown.other == 3 * BLOCK_SIZE == cache.hit_tokens["first"]


def test_hits_count_while_the_names_are_unknown() -> None:
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(99, BLOCK_SIZE, 0)))
    cache.on_gap()
    asked(cache, SYSTEM, 4)
    (prefix,) = cache.prefixes.table.prefixes.values()
    assert (prefix.saved_tokens, prefix.lost_tokens) == (4 * BLOCK_SIZE, 0)


def test_one_enters_the_five_only_with_a_quarter_more() -> None:
    prefixes = Prefixes()

    def hit(number: int, blocks: int) -> None:
        path = names_of([number] * blocks)
        prefixes.look_up(path, blocks, [], block_size=4, time_ns=0)

    for number in range(5):
        hit(number, 20)
    hit(5, 25)
    newcomer = label_of(name_of([5] * 25))
    assert prefixes.shown.other == 100
    hit(5, 25)
    assert prefixes.shown.tokens[newcomer] == 100, "counted since it entered"
    assert list(prefixes.shown.left.values()) == [80]


def test_distinct_prefixes_without_end_take_no_more_memory() -> None:
    prefixes = Prefixes(counters=64)
    heavy = names_of([0] * 30)
    for number in range(20_000):
        path = [name_of([1, number % 256, number // 256]), name_of([2, number % 251])]
        prefixes.look_up(path, 1 + number % 2, [], block_size=4, time_ns=number)
        if number % 10 == 0:
            prefixes.look_up(heavy, 30, [], block_size=4, time_ns=number)
    prefixes.table.check()
    assert len(prefixes.table.prefixes) == 64
    assert max(prefixes.table.prefixes.values(), key=lambda p: p.saved_tokens).name == heavy[-1]
    assert len(prefixes.shown.left) <= REMEMBERED


def test_labels_that_left_are_forgotten_in_the_end() -> None:
    shown = TopOwners()
    table = Prefixes(counters=10_000).table
    tokens = 1
    for number in range(2 * REMEMBERED):
        prefix, _ = table.take(name_of([number % 256, number // 256]), 4, tokens)
        prefix.saved_tokens = tokens
        shown.credit(prefix, tokens)
        tokens = tokens * 5 // 4 + 1
    assert len(shown.tokens) == SHOWN
    assert len(shown.left) == REMEMBERED
