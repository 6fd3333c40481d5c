"""Drives SGLang's real scheduler, with its model, pool, tree and loop, in one process a scenario.

    python -m tests.sglang.drive MODEL REQUESTS SCENARIO[!FAULT]...

Runs in SGLang's Python, with the observer's folder on PYTHONPATH. After each step the ledger that
follows the observer's events is compared with SGLang's own counts. One JSON line a scenario, in any
order. FAULT is a method of ours that raises at its third call, or several, see `break_hook`; or
`unobserved`; or `switched`, for an observer that goes off and on, see `tests.sglang.switched`.
"""

import fcntl
import inspect
import itertools
import json
import logging
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from functools import partial
from types import FunctionType
from typing import Any

from kvscope_events.events import (
    ObserverStopped,
    PagesEvicted,
    PagesReleased,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.observers.endpoints import (
    DIRECTORY_VARIABLE,
    SWITCH_VARIABLE,
    scheduler_endpoint,
)
from kvscope_events.observers.sglang.plugin import NAMES_VARIABLE
from kvscope_events.wire.frame import decode_batch, encode_batch
from kvscope_exporter.state.cache import Cache
from kvscope_exporter.state.ledger import Ledger
from tests.sglang.admission import Expected
from tests.sglang.broken import break_hook
from tests.sglang.load import Load
from tests.sglang.scenarios import COMMON, NAMED, PUBLISHING, SCENARIOS, SWITCHED
from tests.sglang.switched import Cycles, keep_published, published
from tests.support.late_reader import reason_heard

MAX_EXAMPLES = 5
UNOBSERVED = "unobserved"
GOES_OFF_AND_ON = "switched"
ALL = SCENARIOS | SWITCHED
AT_ONCE = 2
"""Processes, each of a thread."""


class Witness:
    """A reader of the events alone, beside SGLang's own counts."""

    def __init__(self, scheduler: Any, observer: Any) -> None:
        self.found: Counter[str] = Counter()
        self.examples: list[str] = []
        self.stops: list[str | None] = []
        self.chunks: list[int] = []
        self._scheduler = scheduler
        self._ledger, self._cache = Ledger(), Cache()
        self._stopped = False
        self._subscription = observer.outlet.bus.subscribe(1 << 20)
        self._subscription.request_snapshot()
        observer.outlet.serve(lambda: True)  # the pool is still empty
        self.look(at_end_of_step=False)

    def look(self, *, at_end_of_step: bool) -> None:
        """Follow what was sent; SGLang's counts are up to date at the end of a step only."""
        while (taken := self._subscription.take()) is not None:
            batch, lost = taken
            assert not lost
            if self._stopped:
                self._ledger.on_gap()
                self._cache.on_gap()
            self._stopped = type(batch.events[-1]) is ObserverStopped
            self.found["stops"] += self._stopped
            again, unknown = decode_batch(encode_batch(batch))  # like a reader, with bounds checked
            assert not unknown
            self._ledger.on_batch(again)
            self._cache.on_batch(again)
            for event in again.events:
                self._count(event)
        observer = current()
        if at_end_of_step and observer is not None and observer.live:
            self._compare()

    def _compare(self) -> None:
        scheduler, ledger = self._scheduler, self._ledger
        pool, tree = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
        page = pool.page_size
        theirs = [
            pool.available_size() // page,
            tree.evictable_size() // page,
            tree.protected_size() // page,
        ]
        ours = [ledger.num_free, ledger.num_cached, ledger.pages.num_protected]
        self.found["steps"] += 1
        if not ledger.known or ours != theirs or ledger.imbalance:
            self._differs("counts", f"{ours} for {theirs}, imbalance {ledger.imbalance}")
        cache = self._cache
        # After a return they may be incomplete, as for a reader that comes late.
        if cache.counted.is_followed and (cache.known or not self.found["stops"]):
            self.found["named_steps"] += 1
            if not cache.known or len(cache.resident.names) != theirs[1] + theirs[2]:
                self._differs("names", f"{len(cache.resident.names)} for {theirs[1] + theirs[2]}")

    def _differs(self, what: str, text: str) -> None:
        self.found[f"differing_{what}"] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"step {self.found['steps']}: {what}: {text}")

    def _count(self, event: Any) -> None:
        found, page = self.found, self._ledger.block_size
        if isinstance(event, PrefixLookup):
            phase = "resumed" if event.resumed else "first"
            found[f"{phase}_hit_tokens"] += event.hit_blocks * page
            found[f"{phase}_loaded_tokens"] += event.loaded_tokens
            found[f"{phase}_queried_tokens"] += event.queried_tokens
        elif isinstance(event, PagesEvicted):
            found["evicted_tokens"] += event.pages * page * (event.cause == "capacity")
        elif isinstance(event, PagesReleased):
            found[f"released_{event.cause}"] += event.cached + event.free + event.shared
        elif isinstance(event, RequestArrived):
            found["arrived"] += 1
        elif isinstance(event, RequestPreempted):
            found["preemptions"] += 1
            found["discarded_tokens"] += event.discarded_tokens
        elif isinstance(event, RequestResumed):
            found["recomputed_tokens"] += event.recompute_tokens
        elif isinstance(event, SequenceFinished):
            if event.queue_ns is not None:
                found["prompt_tokens"] += event.prompt_tokens
                found["output_tokens"] += event.output_tokens
        elif isinstance(event, RequestFinished):
            found["finished"] += 1
        elif isinstance(event, StepScheduled):
            self.chunks.append(sum(event.tokens))
        elif isinstance(event, StepCompleted):
            self.stops.append(event.admission_stop)
            if event.prefill_tokens and self.chunks.pop(0) != event.prefill_tokens:
                self._differs("chunks", f"other than {event.prefill_tokens}")
            found["prefill_tokens"] += event.prefill_tokens
            found["emitted"] += len(event.emitted)


def metrics() -> dict[str, float]:
    """SGLang's own page, summed by name and mode."""
    import prometheus_client

    sums: dict[str, float] = {}
    for family in prometheus_client.REGISTRY.collect():
        for sample in family.samples:
            if sample.name.startswith("sglang:") and sample.name.endswith("_total"):
                mode = sample.labels.get("mode")
                name = sample.name[7:] + (f":{mode}" if mode else "")
                sums[name] = sums.get(name, 0.0) + sample.value
    return sums


def wrappers_on(scheduler: Any) -> int:
    """Methods of its objects, and of batches, that are hooked now."""
    from sglang.srt.managers.schedule_batch import ScheduleBatch

    from kvscope_events.observers.sglang import patching

    pool, rows = scheduler.token_to_kv_pool_allocator, scheduler.req_to_token_pool
    found = 0
    for target in (scheduler, scheduler.tree_cache, pool, rows, ScheduleBatch):
        for value in vars(target).values():
            is_function = isinstance(value, FunctionType)
            found += is_function and value.__code__.co_filename == patching.__file__
    return found


def current() -> Any:
    """The observer of this process, which goes on after others; None: it has none."""
    from kvscope_events.observers.sglang import plugin

    return plugin.current()


def discards(scheduler: Any, observer: Any) -> int:
    """The number of times that a step drops names, after a live observer has ended thrice."""
    calls = itertools.count()
    scheduler.process_batch_result = lambda *_: None
    observer.off("the end of a test")
    observer.close()
    observer.close()
    scheduler.tree_cache.take_events = lambda: next(calls)
    scheduler.process_batch_result(None, None)
    return next(calls)


class Said(logging.Handler):
    """Collects the warnings of the observer in SGLang's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("sglang.kvscope").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def build_scheduler(model: str, arguments: Iterable[str]) -> Any:
    """SGLang's scheduler, as its own process would build it, with the plugins on the path."""
    import sglang.srt.managers.scheduler as module
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import PortArgs, prepare_server_args

    args = prepare_server_args(["--model-path", model, *COMMON, *arguments])
    ports = PortArgs.init_new(args)
    load_plugins()
    if hasattr(module, "SpawnRanks"):
        ranks = module.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
        module.publish(args, role="scheduler", ranks=ranks)
    else:
        module.publish(args, role="scheduler")
    if "gpu_id" in inspect.signature(module.Scheduler.__init__).parameters:
        return module.Scheduler(args, ports, 0, 0, 0, 0, 0, 0, None)
    return module.Scheduler(args, ports)


def start_of(scheduler: Any) -> dict[str, Any] | None:
    """The report of its start; None: nothing was reported."""
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_loader.loader import DefaultModelLoader

    from kvscope_events.observers.sglang import start

    if not start._starts:
        return None
    (reported,) = start._starts
    methods = [ModelRunner.load_model]
    methods += [DefaultModelLoader._prepare_weights, DefaultModelLoader._get_weights_iterator]
    event, hello = reported._start.event(), reported._hello
    return {
        "phases": [*event.began_ns],
        "ended": event.ended_ns is not None,
        "read": event.weights_read_bytes,
        "files": event.weights_file_bytes,
        "place": [hello.engine, hello.worker, hello.ready],
        "hooked": [name for name in (start._WORKER, *start.PHASES) if name in vars(scheduler)]
        + [m.__name__ for m in methods if "kvscope_events" in m.__code__.co_filename],
    }


def put_between(scheduler: Any, load: Any) -> None:
    """Let `load` stand where the scheduler reads and writes its sockets."""
    type(scheduler.request_receiver).recv_requests = lambda _self, *_, **__: load.receive(scheduler)
    type(scheduler.ipc_channels.send_to_tokenizer).send_output = lambda _self, output, *_: (
        load.reply(output)
    )


def run(model: str, requests: int, name: str, fault: str = "") -> dict[str, Any]:
    """One scenario, in this process."""
    scenario = ALL[name]
    if scenario.has_tier:
        from tests.sglang.tiers import copy_nothing

        copy_nothing()
    if name == PUBLISHING:
        keep_published()
    said = Said()
    scheduler = build_scheduler(model, scenario.arguments)
    observer = current()
    declined = observer is None and fault != UNOBSERVED
    heard = reason_heard(scheduler_endpoint(0, "sglang")) if declined else None
    started = start_of(scheduler)
    wrapped = wrappers_on(scheduler)
    witness = None if observer is None else Witness(scheduler, observer)
    load = Load(requests, priority=scenario.priority)
    expected = None if witness is None or fault else Expected(scheduler)
    cycles = None
    if fault == GOES_OFF_AND_ON:
        assert witness is not None
        cycles = Cycles(load, partial(witness.look, at_end_of_step=True), wrappers_on)
    elif witness is not None:
        look_after_steps(scheduler, witness)
    put_between(scheduler, cycles or load)
    scheduler.run_event_loop()
    observer = current()
    live = observer is not None and observer.live
    if live:
        observer.flush()
    if witness is not None:
        witness.look(at_end_of_step=False)
    return {
        "scenario": name,
        "live": live,
        "start": started,
        "tells": [] if observer is None else observer.hello.tells,
        "wrapped": [wrapped, wrappers_on(scheduler)],
        "said": [*said.lines],
        "heard": heard,
        "left_over": 0 if live else len(scheduler.tree_cache.take_events()),
        "differences": None if observer is None else observer.differences,
        "tree": type(scheduler.tree_cache).__name__,
        "found": {} if witness is None else dict(witness.found),
        "examples": [] if witness is None else witness.examples,
        "stops": [] if expected is None else [witness.stops, expected.stops],
        "replies": dict(load.replies),
        "tokens": load.tokens,
        "metrics": metrics(),
        "seen": {} if cycles is None else dict(cycles.seen),
        "problems": [] if cycles is None else cycles.problems,
        "published": published(),
        "discards": discards(scheduler, observer) if live else None,
    }


def look_after_steps(scheduler: Any, witness: Witness) -> None:
    """Have it compare after each step."""
    processed = scheduler.process_batch_result

    def process(*arguments: Any, **keywords: Any) -> Any:
        result = processed(*arguments, **keywords)
        witness.look(at_end_of_step=True)
        return result

    scheduler.process_batch_result = process


def main() -> None:
    model, requests, *names = sys.argv[1:]
    for name in names:
        scenario = ALL[name.partition("!")[0]]
        os.environ.update(scenario.environment)  # some are read at the import
    import sglang.srt.managers.scheduler  # noqa: F401  # once, for all scenarios

    running: set[int] = set()
    for name in names:
        if len(running) == AT_ONCE:
            running.discard(os.wait()[0])
        child = os.fork()
        if child:
            running.add(child)
            continue
        try:
            os.environ[DIRECTORY_VARIABLE] += f"/{os.getpid()}"
            random.seed()  # SGLang draws its ports
            scenario_name, _, fault = name.partition("!")
            if fault == UNOBSERVED:
                os.environ[SWITCH_VARIABLE] = "off"
            elif fault == GOES_OFF_AND_ON:
                os.environ[NAMES_VARIABLE] = "on" if scenario_name in NAMED else "off"
            elif fault:
                break_hook(fault)
            found = {**run(model, int(requests), scenario_name, fault), "fault": fault}
            with open(__file__) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # a line is longer than what a pipe takes at once
                print("FOUND", json.dumps(found), flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    for _ in running:
        os.wait()


if __name__ == "__main__":
    main()
