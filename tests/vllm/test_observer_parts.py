"""Parts of the observer for vLLM that need no vLLM."""

import io
import logging
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.events import PoolCreated
from kvscope_events.limits import MAX_LABEL
from kvscope_events.observers import endpoints, log
from kvscope_events.observers.vllm.check import PROBATION_NS, differ
from kvscope_events.observers.vllm.facts import Names, check_hash
from kvscope_events.observers.vllm.hooks import HOOKS
from kvscope_events.observers.vllm.manager import allocating
from kvscope_events.observers.vllm.observer import MAX_DEFERRED, Observer
from kvscope_events.observers.vllm.patching import Patches, UnknownMethodError, find
from kvscope_events.observers.vllm.requests import (
    adapter_of,
    finish_reason,
    release_cause,
    tenant_of,
    trace_of,
)
from kvscope_events.observers.vllm.sizing import bytes_per_block, capacity, sized_by
from kvscope_events.observers.vllm.snapshot import Counts, State
from kvscope_events.observers.vllm.tier import tier_of
from kvscope_events.observers.vllm.wrappers import Hook, Site, compiled
from kvscope_events.tenants import tenant_digest
from kvscope_events.trace_context import NO_TRACE, TraceContext

DIGEST = bytes(range(32))
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def test_one_group_is_named_by_the_digest_alone() -> None:
    names = Names(1)
    assert names.of_block(DIGEST + bytes(4)) == DIGEST[:16]
    assert names.of_lookup([DIGEST]) == [DIGEST[:16]]
    assert names.of_content(DIGEST, 0) == DIGEST[:16]


def test_groups_have_names_of_their_own() -> None:
    names = Names(3, lookup_group=2)
    found = [names.of_block(DIGEST + group.to_bytes(4, "big")) for group in range(3)]
    assert len(set(found)) == 3
    assert {len(name) for name in found} == {16}
    assert found == [names.of_content(DIGEST, group) for group in range(3)]
    assert names.of_lookup([DIGEST]) == [found[2]]


@pytest.mark.parametrize(
    ("status", "stop", "output_tokens", "reason", "cause"),
    [
        ("FINISHED_STOPPED", ["</s>"], 4, "stop", "finished"),
        ("FINISHED_LENGTH_CAPPED", None, 4, "length", "finished"),
        ("FINISHED_ABORTED", None, 4, "abort", "aborted"),
        ("FINISHED_ABORTED", [], 4, "abort", "aborted"),
        ("FINISHED_ABORTED", ["</s>"], 0, "abort", "aborted"),
        ("FINISHED_ABORTED", ["</s>"], 4, "stop_string_or_abort", "finished"),
        ("FINISHED_ERROR", ["</s>"], 4, "error", "aborted"),
    ],
)
def test_an_order_to_abort_is_no_abort_where_it_may_be_a_stop_string(
    status: str, stop: list[str] | None, output_tokens: int, reason: str, cause: str
) -> None:
    request = types.SimpleNamespace(
        status=types.SimpleNamespace(name=status),
        sampling_params=types.SimpleNamespace(stop=stop),
        num_output_tokens=output_tokens,
        is_finished=lambda: True,
    )
    assert (finish_reason(request), release_cause(request)) == (reason, cause)


@pytest.mark.parametrize("block_hash", [bytes(19), 7, "a" * 32, None])
def test_a_hash_of_another_form_is_refused(block_hash: Any) -> None:
    check_hash(bytes(20))
    with pytest.raises(ValueError, match="unknown form"):
        check_hash(block_hash)


@pytest.fixture
def pool() -> Iterator[type]:
    """A class in a module that can be imported, as vLLM's are."""

    class Pool:
        def touch(self, blocks: list[int]) -> int:
            return len(blocks)

        def free(self, blocks: list[int], later: bool = False) -> None:
            blocks.clear()

    module = types.ModuleType("some_server")
    module.Pool = Pool  # type: ignore[attr-defined]
    sys.modules["some_server"] = module
    yield Pool
    del sys.modules["some_server"]


def hook(method: str, *parameters: str, required: bool = True) -> Hook:
    return Hook("some_server", "Pool", method, parameters, "1", required, lambda o, s: True, None)


def double(hook: Hook, original: Any) -> Any:
    return lambda self, *args, **kwargs: 2 * original(self, *args, **kwargs)


def test_methods_are_replaced_and_put_back(pool: Any) -> None:
    patches, original = Patches(), pool.touch
    patches.apply(find([hook("touch", "blocks")]), double)
    assert pool().touch([1, 2]) == 4
    assert patches.methods == {("Pool", "touch")}
    patches.restore()
    assert pool.touch is original


def test_what_somebody_else_replaced_since_stays(pool: Any) -> None:
    patches = Patches()
    patches.apply(find([hook("touch", "blocks")]), double)
    ours = pool.touch
    pool.touch = lambda self, blocks: 100 + ours(self, blocks)
    patches.restore()
    assert pool().touch([1]) == 102


def test_nothing_is_replaced_before_all_is_found(pool: Any) -> None:
    original = pool.touch
    with pytest.raises(UnknownMethodError, match=r"looked for Pool\.gone\(self\), found no such"):
        find([hook("touch", "blocks"), hook("gone")])
    assert pool.touch is original
    assert find([hook("gone", required=False)]) == []


def test_a_failure_while_replacing_puts_all_back(pool: Any) -> None:
    original, patches = pool.touch, Patches()

    def fail_at_free(hook: Hook, method: Any) -> Any:
        if hook.method == "free":
            raise RuntimeError
        return double(hook, method)

    with pytest.raises(RuntimeError):
        patches.apply(find([hook("touch", "blocks"), hook("free", "blocks")]), fail_at_free)
    assert pool.touch is original


@pytest.mark.parametrize("required", [True, False])
def test_other_parameters_are_refused_even_of_what_may_be_missing(
    pool: Any, required: bool
) -> None:
    with pytest.raises(UnknownMethodError, match=r"found \(self, blocks, later\)"):
        find([hook("free", "blocks", "now", required=required)])


def test_a_class_that_is_gone_is_named() -> None:
    with pytest.raises(UnknownMethodError, match="no class"):
        find([hook("touch", "blocks")])


def test_every_hook_has_a_wrapper_and_a_place_in_the_table_once() -> None:
    places = [(one.module, one.owner, one.method) for one in HOOKS]
    assert len(set(places)) == len(places)
    assert all(one.before or one.after for one in HOOKS)
    assert all(one.required == (one.since == "0.11") for one in HOOKS)


def test_a_vllm_that_keeps_its_pool_elsewhere_is_no_error() -> None:
    observer = types.SimpleNamespace(pool=object())
    (copies,) = [one for one in HOOKS if one.method == "_apply_cow"]
    assert not copies.mine(observer, object())
    assert copies.mine(observer, types.SimpleNamespace(block_pool=observer.pool))


def test_a_closed_stderr_is_not_the_servers_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    monkeypatch.setattr(log, "_logger", logging.Logger("without handlers"))
    log.warn("off")
    log.say("on")


def test_releases_that_never_come_take_no_more_memory() -> None:
    observer: Any = types.SimpleNamespace(deferred={})
    for block in range(MAX_DEFERRED + 10):
        Observer.will_free(observer, [block], (None, "cow"))
    assert len(observer.deferred) == MAX_DEFERRED
    assert (0,) not in observer.deferred
    for _ in range(2 * MAX_DEFERRED):
        Observer.will_free(observer, [20], (None, "cow"))
    assert len(observer.deferred[20,]) == MAX_DEFERRED


def test_a_compiled_wrapper_passes_every_argument_on() -> None:
    default = object()

    def original(self: Any, request: Any, observer: Any = default, result: int = 3) -> tuple[Any]:
        return request, observer, result  # type: ignore[return-value]

    seen: list[Any] = []
    names = {"_original": original, "_see": lambda **named: seen.append(named)}
    body = "    _result = _original({arguments})\n    _see({named})\n    return _result\n"
    wrapper = compiled(original, body, names)
    assert wrapper is not None
    assert wrapper(None, 1) == (1, default, 3)
    assert wrapper(None, request=1, result=2) == (1, default, 2)
    assert seen[0] == {"request": 1, "observer": default, "result": 3}
    assert wrapper.__name__ == "original"


@pytest.mark.parametrize(
    "original", [lambda self, *requests: None, lambda self, *, request: None, lambda _names: None]
)
def test_a_method_that_cannot_be_written_out_is_not_compiled(original: Any) -> None:
    assert compiled(original, "    return None\n", {"_names": 1}) is None


def test_a_request_of_any_parameter_names_is_wrapped() -> None:
    class Manager:
        def allocate_slots(self, request: Any, observer: int, runs: int, result: int) -> int:
            return observer + runs + result

    site = Site()
    one = next(one for one in HOOKS if one.method == "allocate_slots")
    wrapped = allocating(site, one, Manager.allocate_slots)
    manager = Manager()
    running = types.SimpleNamespace(status="running")
    site.observer = types.SimpleNamespace(  # type: ignore[assignment]
        manager=manager, running="running", request=None, live=True
    )
    assert wrapped(manager, running, 1, 20, result=300) == 321
    site.observer, site.began = None, True
    assert wrapped(manager, running, 1, 20, 300) == 321


class Checked:
    """The part of an observer that the check needs."""

    def __init__(self) -> None:
        self.difference_ns: int | None = None
        self.differences = 0
        self.snapshot_owed = False
        self.reason = ""

    def off(self, reason: str) -> None:
        self.reason = reason


def test_one_difference_costs_a_snapshot_and_two_within_a_minute_the_observer() -> None:
    observer: Any = Checked()
    differ(observer, "a", 0)
    assert (observer.snapshot_owed, observer.reason) == (True, "")
    differ(observer, "b", PROBATION_NS)
    assert (observer.differences, observer.reason) == (2, "")
    differ(observer, "c", 2 * PROBATION_NS - 1)
    assert (
        observer.reason
        == "this vLLM works differently from known versions: c, twice within a minute"
    )


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, TraceContext(TRACE, SPAN, True)),
        ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, TraceContext(TRACE, SPAN, False)),
        ({"traceparent": f"00-short-{SPAN}-01"}, NO_TRACE),
        ({"traceparent": None}, NO_TRACE),
        ({}, NO_TRACE),
        (None, NO_TRACE),
    ],
)
def test_the_trace_is_that_of_the_caller(headers: Any, trace: TraceContext) -> None:
    assert trace_of(headers) == trace


def tensor(size: int, **more: Any) -> Any:
    return types.SimpleNamespace(size=size, **more)


@pytest.mark.parametrize(
    ("tensors", "num_blocks", "expected"),
    [([], 10, 0), ([tensor(100), tensor(100)], 10, 20), ([tensor(100)], 0, 0)],
)
def test_bytes_of_a_block_are_its_part_of_the_pool(
    tensors: Any, num_blocks: int, expected: int
) -> None:
    config = types.SimpleNamespace(kv_cache_tensors=tensors)
    assert bytes_per_block(config, num_blocks) == expected


def test_the_environment_names_the_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", "/run/x")
    assert endpoints.scheduler_endpoint(1) == "ipc:///run/x/engine-1.sock"
    assert endpoints.worker_endpoint(1, 3) == "ipc:///run/x/engine-1-worker-3.sock"
    monkeypatch.setenv("KVSCOPE_OBSERVER", "OFF")
    assert endpoints.switched_off()


def test_the_outlet_leaves_batches_for_later_and_keeps_their_order(tmp_path: Any) -> None:
    from kvscope_events.events import ObserverStopped, PrefixCacheReset
    from kvscope_events.observers.outlet import Outlet

    outlet = Outlet(f"ipc://{tmp_path}/o.sock")
    assert isinstance(outlet.bus, EventBus)
    subscription = outlet.bus.subscribe()
    outlet.start(lambda: [ObserverStopped("state")])
    try:
        assert outlet._busy.acquire(blocking=False)  # the idle thread is at it
        outlet.send([PrefixCacheReset(1)])
        assert subscription.take() is None
        outlet._busy.release()
        subscription.request_snapshot()
        outlet.send([PrefixCacheReset(2)])
        taken = subscription.take()
        assert taken is not None
        wanted = [PrefixCacheReset(1), PrefixCacheReset(2), ObserverStopped("state")]
        assert taken[0].events == wanted
    finally:
        outlet.stop()


def test_a_snapshot_says_of_the_pool_what_its_creation_said() -> None:
    created = PoolCreated(4, 32, 7, 1, size_tokens=99, longest_sequences=1.5)
    snapshot = State([0] * 4, [None] * 4, [], Counts()).event(created, largest_step=512)
    assert (snapshot.largest_step, snapshot.swap_blocks) == (512, 0)
    assert (snapshot.size_tokens, snapshot.longest_sequences) == (99, 1.5)


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"num_gpu_blocks_override": 64, "kv_cache_memory_bytes": 9}, "num_gpu_blocks_override"),
        ({"num_gpu_blocks_override": None, "kv_cache_memory_bytes": 9}, "kv_cache_memory_bytes"),
        ({"gpu_memory_utilization": 0.9}, "gpu_memory_utilization"),
    ],
)
def test_the_option_that_sized_the_pool_is_the_one_that_wins(
    given: dict[str, Any], option: str
) -> None:
    assert sized_by(types.SimpleNamespace(**given)) == option


def test_a_vllm_that_does_not_say_what_fits_leaves_it_unknown() -> None:
    assert capacity(types.SimpleNamespace()) == (None, None)
    says = types.SimpleNamespace(kv_cache_size_tokens=1567, kv_cache_max_concurrency=1.53)
    assert capacity(says) == (1567, 1.53)


@pytest.mark.parametrize(
    ("salt", "session", "same_as"),
    [("acme", None, "acme"), ("acme", "7", "acme"), (None, "7", "7"), (None, None, None)],
)
def test_a_tenant_is_the_digest_of_the_salt_else_of_the_session(
    salt: str | None, session: str | None, same_as: str | None
) -> None:
    request = types.SimpleNamespace(cache_salt=salt, session_id=session)
    tenant = tenant_of(request)
    if same_as is None:
        assert tenant == ""
    else:
        assert tenant == tenant_digest(same_as)
    assert tenant_of(types.SimpleNamespace()) == "", "older versions have neither"


def test_an_adapter_is_named_within_the_contracts_bounds() -> None:
    adapter = types.SimpleNamespace(lora_name="x" * 1000)
    assert adapter_of(types.SimpleNamespace(lora_request=adapter)) == "x" * MAX_LABEL
    assert adapter_of(types.SimpleNamespace(lora_request=None)) == ""
    assert adapter_of(types.SimpleNamespace()) == ""


@pytest.mark.parametrize(
    ("kind", "extra", "tier"),
    [
        ("OffloadingConnector", {}, "host"),
        ("OffloadingConnector", {"spec_name": "CPUOffloadingSpec"}, "host"),
        ("OffloadingConnector", {"spec_name": "SomeStorageSpec"}, None),
        ("SimpleCPUOffloadConnector", {}, "host"),
        ("NixlConnector", {}, "remote"),
        ("LMCacheConnectorV1", {}, "other"),
        ("MultiConnector", {}, None),
    ],
)
def test_the_connectors_class_names_the_tier(
    kind: str, extra: dict[str, str], tier: str | None
) -> None:
    connector = type("Derived", (type(kind, (), {}),), {})()
    connector._kv_transfer_config = types.SimpleNamespace(kv_connector_extra_config=extra)
    assert tier_of(connector) == tier
    assert tier_of(None) is None
