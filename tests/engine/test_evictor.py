"""The LRU list against a plain Python list."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvscope_engine.evictor import LruEvictor

NUM_BLOCKS = 12


class EvictorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.evictor = LruEvictor(NUM_BLOCKS)
        self.model: list[int] = []

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        absent = sorted(set(range(NUM_BLOCKS)) - set(self.model))
        if absent:
            blocks = data.draw(st.lists(st.sampled_from(absent), unique=True))
            self.evictor.extend(blocks)
            self.model += blocks

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            block = data.draw(st.sampled_from(self.model))
            self.evictor.remove(block)
            self.model.remove(block)

    @rule(data=st.data())
    def pop(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.model)))
        assert self.evictor.pop(count) == self.model[:count]
        del self.model[:count]

    @invariant()
    def same_order(self) -> None:
        assert list(self.evictor) == self.model
        assert len(self.evictor) == len(self.model)


TestEvictor = EvictorMachine.TestCase
