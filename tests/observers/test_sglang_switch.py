"""The parts of an SGLang observer that goes off and on: methods, events of names, requests."""

import sys
from array import array
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import EngineEvent, NamesRemoved, RequestArrived
from kvscope_events.observers.sglang import plugin
from kvscope_events.observers.sglang.content import Content
from kvscope_events.observers.sglang.patching import Patches, found
from kvscope_events.observers.sglang.present import references, running
from kvscope_events.observers.sglang.requests import Sequences, ending, preempted
from kvscope_events.vocabulary import PreemptionCause


class BlockRemoved:
    def __init__(self, number: int) -> None:
        self.block_hashes = [number]
        self.medium = "GPU"


class Tree:
    """A radix tree that removes one page at each call of `remove`."""

    def __init__(self) -> None:
        self._events: list[BlockRemoved] = []
        self._removed = 0

    def remove(self) -> None:
        self._events.append(BlockRemoved(self._removed))
        self._removed += 1

    def take_events(self) -> list[BlockRemoved]:
        events, self._events = self._events, []
        return events


ACTIONS = st.lists(st.sampled_from(["remove", "step", "publish", "off", "on"]), max_size=40)


@given(ACTIONS)
def test_sglangs_publisher_gets_every_event_once_and_in_order(actions: list[str]) -> None:
    tree, ours, published = Tree(), list[EngineEvent](), list[int]()
    content, attached = Content(SimpleNamespace(tree_cache=tree), 16, publishes=True), False

    def publish() -> None:
        published.extend(event.block_hashes[0] for event in tree.take_events())

    for action in actions:
        if action == "remove":
            tree.remove()
        elif action == "step" and attached:
            content.drain(ours)
        elif action == "publish":
            publish()
            assert attached or "take_events" not in vars(tree)
        elif action == "off":
            content.detach()
            attached = False
        elif action == "on" and not attached:
            content.attach(ours, fail)
            attached = True
    publish()
    assert published == list(range(tree._removed))


def fail(error: BaseException, where: str) -> None:
    raise AssertionError(where) from error


def test_a_fault_of_ours_costs_sglangs_publisher_no_event() -> None:
    """It was found in an observer that ended while the publisher had still to be served."""
    tree, faults = Tree(), list[str]()
    content = Content(SimpleNamespace(tree_cache=tree), 16, publishes=True)

    class Full(list[EngineEvent]):
        def append(self, event: EngineEvent, /) -> None:
            raise MemoryError

    def end(error: BaseException, where: str) -> None:
        faults.append(where)
        content.detach()

    content.attach(Full(), end)
    tree.remove()
    assert [event.block_hashes for event in tree.take_events()] == [[0]]
    tree.remove()
    assert [event.block_hashes for event in tree.take_events()] == [[1]]
    assert faults == ["take_events"]
    assert "take_events" not in vars(tree)


def test_names_are_reported_to_readers_while_it_is_on() -> None:
    tree, ours = Tree(), list[EngineEvent]()
    content = Content(SimpleNamespace(tree_cache=tree), 16, publishes=False)
    content.attach(ours, fail)
    tree.remove()
    assert tree.take_events() == []
    assert ours == [NamesRemoved("device", [bytes(8)])]


@pytest.mark.parametrize(
    ("publishes", "in_python", "in_step", "reason"),
    [
        (False, False, False, "names pages for the observer alone"),
        (False, True, False, ""),
        (True, False, False, ""),
        (True, True, True, "take each step together"),
    ],
)
def test_the_reasons_to_stay(publishes: bool, in_python: bool, in_step: bool, reason: str) -> None:
    class KVCacheEventRecorder:
        """Named as SGLang's own."""

    tree = Tree()
    vars(tree)["kv_events"] = KVCacheEventRecorder() if in_python else object()
    content = Content(SimpleNamespace(tree_cache=tree), 16, publishes=publishes)
    found = plugin._never_off(content, in_step=in_step)
    assert reason in found
    assert bool(reason) == bool(found)
    assert plugin._never_off(None, in_step=False) == ""


class Owner:
    def method(self) -> int:
        return 1


def test_a_method_that_other_code_has_replaced_is_named() -> None:
    owner, calls = Owner(), list[str]()
    patches = Patches(fail)
    patches.apply([found(owner, "method", (), lambda *_: calls.append("ours"))])
    assert patches.covered() == ""
    inner = owner.method
    owner.method = lambda: inner() + 1  # type: ignore[method-assign]
    assert patches.covered() == "Owner.method"
    patches.restore()
    assert owner.method() == 2
    assert calls == []


def test_only_the_tree_of_the_pool_names_pages_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, which sorts waiting requests, kept each event for good; and an SGLang with KV
    events of its own counted as one that names pages for us."""

    @dataclass
    class CacheInitParams:
        req_to_token_pool: object
        page_size: int
        enable_kv_cache_events: bool = False

    module = SimpleNamespace(CacheInitParams=CacheInitParams)
    monkeypatch.setitem(sys.modules, "sglang.srt.mem_cache.cache_init_params", module)
    monkeypatch.setenv(plugin.NAMES_VARIABLE, "on")
    monkeypatch.setattr(plugin, "_switched_on", False)
    plugin._switch_names_on()
    sorts = CacheInitParams(None, 1)
    published = CacheInitParams(object(), 1, enable_kv_cache_events=True)
    assert (sorts.enable_kv_cache_events, published.enable_kv_cache_events) == (False, True)
    assert not plugin._switched_on
    assert CacheInitParams(object(), 1).enable_kv_cache_events
    assert plugin._switched_on


def make_request(rid: str, row: int | None, allocated: int = 0, **further: Any) -> Any:
    kv = SimpleNamespace(req_pool_idx=row, kv_allocated_len=allocated)
    return SimpleNamespace(rid=rid, kv=kv, **further)


def test_those_that_run_have_a_row_wherever_they_are() -> None:
    merged, launched, in_chunks = (make_request(name, 1, 17) for name in "abc")
    ended = make_request("d", None)
    scheduler = SimpleNamespace(
        running_batch=SimpleNamespace(reqs=[merged, ended]),
        last_batch=SimpleNamespace(reqs=[launched, merged]),
        result_queue=[(SimpleNamespace(reqs=[launched, ended]), None)],
        chunked_req=in_chunks,
    )
    assert running(scheduler) == [merged, launched, in_chunks]
    assert references(running(scheduler), 16) == 6
    before = SimpleNamespace(rid="e", kv=None, req_pool_idx=3)  # up to 0.5.20
    idle = SimpleNamespace(running_batch=SimpleNamespace(reqs=[before]), last_batch=None)
    assert running(idle) == [before]


def test_a_request_that_came_before_has_no_times_and_a_number_once_it_looks_up() -> None:
    sequences, earlier = Sequences(), Sequences()
    for _ in range(3):
        list(earlier.arrive(_arriving(f"old {_}"), 0))
    sequences.number_from(earlier)
    runs, waits = _arriving("runs"), _arriving("waits", is_retracted=True)
    sequences.adopt([runs], [waits], 5)
    assert sequences.waiting["waits"].preempted_ns == 5
    assert sequences.running["runs"].number == 0
    admitted = sequences.join(waits, 9)
    assert (admitted.number, admitted.reported) == (4, False)
    cause: PreemptionCause = "out_of_blocks"
    for sequence in (admitted, sequences.running["runs"]):
        assert [*preempted(sequence, cause), *ending(sequence, 12)] == []
    arrival, _ = sequences.arrive(_arriving("new"), 10)
    assert isinstance(arrival, RequestArrived)
    assert arrival.request == 5


def _arriving(rid: str, *, is_retracted: bool = False) -> Any:
    sampling = SimpleNamespace(max_new_tokens=4)
    return SimpleNamespace(
        rid=rid,
        origin_input_ids=array("q", [1, 2]),
        sampling_params=sampling,
        is_retracted=is_retracted,
    )
