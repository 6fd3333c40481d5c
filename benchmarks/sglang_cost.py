"""CPU time and memory that being observed costs SGLang's scheduler.

    PYTHON -m benchmarks.sglang_cost

PYTHON is an interpreter with SGLang (`make sglang`). One process with the real scheduler; the
observer's wrappers come off and go on in turns; a reader is connected while they are on. Time is
that of the scheduler's thread in the two calls in which it is observed. In place of a model, 16 MB
are read between them, so that the caches are cold. Memory is that of two processes.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from array import array
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

from benchmarks.processes import memory_bytes
from benchmarks.report import alternate, report
from kvscope.run.plugin_folder import write_plugin_folder
from kvscope_events.wire.subscriber import WireSubscriber
from tests.sglang.drive import build_scheduler, put_between
from tests.sglang.load import make_request
from tests.sglang.sizes import run_no_model
from tests.vllm.model import tiny_model

PAGE = 16
PROMPT, STEPS, WARM_STEPS = 48, 32, 4
PAIRS = {32: 21, 256: 7}
"""Pairs of rounds, one observed and one not, by number of sequences; one more is warm-up."""
COLD_BYTES = 1 << 24
LONG = 8192
NAMED = 15
ARGUMENTS = (
    *("--page-size", str(PAGE), "--max-total-tokens", str(300 * 128), "--log-level", "error"),
    *("--max-running-requests", "256", "--disable-overlap-schedule"),
)


class Bench:
    """The scheduler, and what stands for its sockets."""

    def __init__(self, model: str) -> None:
        import sglang.srt.managers.scheduler as module

        self.scheduler = build_scheduler(model, ARGUMENTS)
        self._module = module
        run_no_model(self.scheduler)
        self._cold = array("q", bytes(COLD_BYTES))
        self._pending: list[Any] = []
        self._sent = 0
        put_between(self.scheduler, self)

    def receive(self, scheduler: Any) -> list[Any]:
        pending, self._pending = self._pending, []
        return pending

    def reply(self, output: Any) -> None:
        """Replies are dropped."""

    def switch(self, *, on: bool) -> None:
        """Put the observer in, or take it out."""
        from kvscope_events.observers.sglang import plugin

        if on:
            plugin.observe(self.scheduler, self._module)
        else:
            observer = plugin.current()
            assert observer is not None
            assert observer.live
            assert not observer.differences
            plugin.switches.pop().close()
            del self.scheduler.process_batch_result  # what drops the tree's names after our end
            self.scheduler.tree_cache.take_events()

    def decode(self, sequences: int) -> float:
        """CPU microseconds of a step in which each sequence gets a token: the tenth percentile of
        the steps, since other work on the machine only makes them slower."""
        from sglang.srt.managers.io_struct import AbortReq, FlushCacheReqInput

        scheduler = self.scheduler
        for _ in range(sequences):
            self._sent += 1
            # Short, so that all fit; of all lengths, so that as many need a page in each step.
            ids = [(self._sent * 7 + n * n) % 240 + 3 for n in range(PROMPT + self._sent % PAGE)]
            self._pending.append(make_request(f"r{self._sent}", ids, 64, ignore_eos=True))
        self._step()
        while scheduler.waiting_queue or scheduler.last_batch.forward_mode.is_extend():
            self._step()
        for _ in range(WARM_STEPS):
            self._step()
        spent = [self._step() for _ in range(STEPS)]
        assert len(scheduler.last_batch.reqs) == sequences
        self._pending = [AbortReq(abort_all=True)]
        while not scheduler.is_fully_idle() or self._pending:
            self._step()
        self._pending = [FlushCacheReqInput()]
        self._step()
        return quantiles(spent, n=10)[0]

    def _step(self) -> float:
        """As SGLang's loop that does not overlap; microseconds in the two calls."""
        scheduler, clock = self.scheduler, time.thread_time_ns
        scheduler.ingest_requests()
        began = clock()
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        spent = clock() - began
        scheduler.running_batch, batch = plan.running_batch, plan.batch_to_run
        if batch:
            result = scheduler.run_batch(batch)
            memoryview(self._cold).tobytes()
            began = clock()
            scheduler.process_batch_result(batch, result)
            spent += clock() - began
        else:
            scheduler.on_idle()
        scheduler.last_batch = batch
        return spent / 1e3

    def names(self) -> dict[str, float]:
        """CPU milliseconds for the names of one prompt of LONG tokens, in three places."""
        import torch
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.radix_cache import RadixKey
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

        from kvscope_events.observers.sglang.content import Content, lookup_names

        scheduler = self.scheduler
        rows, pool = scheduler.req_to_token_pool, scheduler.token_to_kv_pool_allocator
        trees = {}
        for named in (False, True):
            params = CacheInitParams(
                disable=False,
                req_to_token_pool=rows,
                token_to_kv_pool_allocator=pool,
                page_size=PAGE,
                tree_components=(ComponentType.FULL,),
            )
            params.enable_kv_cache_events = named  # ours are switched on by now
            trees[named] = type(scheduler.tree_cache)(params)
        content = Content(SimpleNamespace(tree_cache=trees[True]), PAGE, publishes=False)
        values = torch.arange(LONG)
        found: dict[str, list[float]] = {"looked up": [], "stored": [], "told": []}
        for number in range(NAMED):
            ids = array("q", [(number * 31 + n * n) % 240 + 3 for n in range(LONG)])
            request = SimpleNamespace(origin_input_ids=ids, output_ids=array("q"))
            found["looked up"].append(_spent(partial(lookup_names, request, PAGE)))
            keys = {named: InsertParams(key=RadixKey(ids), value=values) for named in trees}
            stored = {n: _spent(partial(trees[n].insert, keys[n])) for n in trees}
            found["stored"].append(stored[True] - stored[False])
            found["told"].append(_spent(partial(content.drain, [])))
        result = {place: median(spent) for place, spent in found.items()}
        return result | {"all": sum(result.values())}


def _spent(call: Callable[[], Any]) -> float:
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e6


def compare(bench: Bench, reader: WireSubscriber, sequences: int) -> dict[str, float]:
    """Medians over pairs of rounds that follow each other, in changing order."""

    def observed(_: int) -> float:
        bench.switch(on=True)
        microseconds = bench.decode(sequences)
        bench.switch(on=False)
        while reader.take() is not None:
            pass
        return microseconds

    sides = {"observed": observed, "bare": lambda _: bench.decode(sequences)}
    found = alternate(sides, PAIRS[sequences])
    bare = found["bare"]
    return {
        "bare": median(bare),
        "added": median(on - off for on, off in zip(found["observed"], bare, strict=True)),
        "bare over itself": median(abs(one - other) for one, other in pairwise(bare)),
    }


def measure(model: str) -> dict[str, Any]:
    bench = Bench(model)
    bench.switch(on=False)
    reader = WireSubscriber(f"ipc://{os.environ['KVSCOPE_OBSERVER_DIR']}/engine-0.sock")
    rows: dict[str, Any] = {
        f"a step of {count} decoding sequences, µs": compare(bench, reader, count)
        for count in PAIRS
    }
    reader.close()
    return rows | {f"names of a prompt of {LONG} tokens, ms": bench.names()}


def memory(model: str, *, observed: bool) -> float:
    """MiB of a process after some load."""
    if not observed:
        os.environ["KVSCOPE_OBSERVER"] = "off"
    bench = Bench(model)
    for _ in range(3):
        bench.decode(256)
    time.sleep(1.5)  # what is queued has been sent by then
    return memory_bytes(os.getpid()) / 2**20


def in_child(call: Callable[[], Any]) -> Any:
    """Call it in a process of its own, since SGLang keeps globals; the result is returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(call()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    if not told:
        raise SystemExit("a process ended without a figure; its traceback is above")
    return json.loads(told)


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory(prefix="kvscope-") as name:
        folder = Path(name)
        os.environ.update(KVSCOPE_OBSERVER_DIR=name, SGLANG_USE_CPU_ENGINE="1", OMP_NUM_THREADS="1")
        (folder / "plugin").mkdir()
        write_plugin_folder(folder / "plugin")
        sys.path.insert(0, str(folder / "plugin"))
        model = str(tiny_model(folder / "model", "llama"))

        rows = in_child(partial(measure, model))
        held = {on: in_child(partial(memory, model, observed=on)) for on in (False, True)}
        rows["memory added, MiB"] = held[True] - held[False]
    report("sglang_cost", rows)


if __name__ == "__main__":
    main()
