"""The stack of runs equals a plain list in LRU order, and its curve a plain LRU at every size."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.state.cache import run_stack
from kvscope_exporter.state.cache.curve import HitCurve
from kvscope_exporter.state.cache.run_stack import RunStack
from tests.engine.test_trace_hits import ref_hits


def tree_path(choices: Sequence[int]) -> list[int]:
    """Ids that name a whole prefix: equal ids mean equal choices from the start."""
    path, node = [], 1
    for choice in choices:
        node = 4 * node + choice
        path.append(node)
    return path


PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tree_path)


def curve_of(paths: Sequence[Sequence[int]], horizon: int | None) -> HitCurve:
    """No reference is kept: a path is released as soon as it was looked up."""
    stack, curve = RunStack(horizon), HitCurve()
    for path in paths:
        curve.look_up(len(path), 0, 0, stack.take(path))
        stack.push(path)
    return curve


@given(paths=st.lists(PATHS, min_size=15, max_size=60), horizon=st.integers(1, 40))
def test_one_pass_counts_the_hits_of_every_size(paths: list[list[int]], horizon: int) -> None:
    sizes = range(1, 41)
    expected = [ref_hits(paths, size) for size in sizes]
    assert curve_of(paths, None).hits_at(sizes) == expected
    assert curve_of(paths, horizon).hits_at(sizes)[:horizon] == expected[:horizon]


class ListOfBlocks:
    """Requests hold names and release them; what is idle stands in a list, the newest first.

    Some requests do not share: they release second copies of what others hold or have released.
    """

    def __init__(self, horizon: int | None) -> None:
        self.horizon = horizon
        self.stack = RunStack(horizon)
        self.idle: list[tuple[int | None, int]] = []
        """Names, None for what has none, each with the number of its release."""
        self.held: list[int] = []
        self.running: list[list[int]] = []
        self.alone: list[list[int]] = []
        self.releases = 0

    def shared(self, path: list[int]) -> None:
        names = [name for name, _ in self.idle]
        start = 0
        while start < len(path) and path[start] in self.held and path[start] not in names:
            start += 1
        depths = []
        for name in path[start:]:
            if name not in names:
                break
            depths.append(names.index(name))
        segments = self.stack.take(path, start)
        assert [above + i for above, count in segments for i in range(count)] == depths
        self.drop(path[start : start + len(depths)])
        self.held += path
        self.running.append(path)

    def computed_alone(self, path: list[int]) -> None:
        self.alone.append(path)

    def released(self, which: int, unnamed: int) -> None:
        path: list[int] = []
        if which < 0 and self.alone:
            path = self.alone.pop(which % len(self.alone))
        elif self.running:
            path = self.running.pop(which % len(self.running))
            for name in path:
                self.held.remove(name)
        path = [name for name in path if name not in self.held]
        self.stack.push(path, unnamed)
        self.drop(path)
        self.idle[:0] = [(name, self.releases) for name in (*path, *[None] * unnamed)]
        self.releases += 1
        if self.horizon is not None:
            oldest = [block for block in self.idle if block[1] == self.idle[-1][1]]
            while len(self.idle) - len(oldest) >= self.horizon:
                self.idle = self.idle[: -len(oldest)]
                oldest = [block for block in self.idle if block[1] == self.idle[-1][1]]

    def removed(self, names: list[int]) -> None:
        self.stack.remove(names)
        self.drop(names)

    def cleared(self) -> None:
        self.stack.clear()
        self.idle = []

    def drop(self, names: Sequence[int]) -> None:
        self.idle = [block for block in self.idle if block[0] not in names]

    def check(self) -> None:
        self.stack.check()
        assert len(self.stack) == len(self.idle)
        assert all(name in self.stack for name, _ in self.idle if name is not None)


@pytest.mark.parametrize("horizon", [None, 12])
@pytest.mark.parametrize("seed", range(60))
def test_the_stack_is_a_list(seed: int, horizon: int | None) -> None:
    rng, blocks = Random(seed), ListOfBlocks(horizon)
    for _ in range(120):
        path = tree_path([rng.randrange(2) for _ in range(rng.randint(1, 7))])
        draw = rng.random()
        if draw < 0.4:
            blocks.shared(path)
        elif draw < 0.5:
            blocks.computed_alone(path)
        elif draw < 0.95:
            blocks.released(rng.randint(-2, 4), rng.choice([0, 0, 1, 2]))
        elif draw < 0.995:
            blocks.removed([rng.choice(path)])
        else:
            blocks.cleared()
        blocks.check()


@pytest.fixture(autouse=True)
def _few_spare_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are laid out again after every few releases, not after a thousand."""
    monkeypatch.setattr(run_stack, "_SPARE", 3)


def test_a_long_life_leaves_no_more_than_the_horizon() -> None:
    stack = RunStack(100)
    for number in range(5_000):
        path = [0, 1 + number % 7, *range(number * 10 + 10, number * 10 + 18)]
        stack.take(path)
        stack.push(path)
    assert 100 <= len(stack) < 110
    assert len(stack._young) + len(stack._old) <= 2 * 110
    assert len(stack._runs) <= 3 * 110
