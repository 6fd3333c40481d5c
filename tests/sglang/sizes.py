"""Drives SGLang's real scheduler with the same conversations on pools of several sizes.

    python -m tests.sglang.sizes MODEL REQUESTS CASE...

A case is an eviction policy and a number of pages, as `lru-1000`; with `-queue` there are more
requests than can run. Scheduler, tree and allocator are SGLang's; the model is not run: a token is
computed from the one before. One JSON line a case: hits, and what the exporter says about sizes.
"""

import json
import os
import sys
import traceback
from types import MethodType
from typing import Any

from kvscope_events.events import PrefixLookup, RequestPreempted
from kvscope_events.wire.frame import decode_batch, encode_batch
from kvscope_exporter.state.cache import Cache
from kvscope_exporter.state.cache.curve import Curve
from tests.sglang.conversations import Conversations
from tests.sglang.drive import build_scheduler, put_between

PAGE = 16
EVERY, QUEUES_EVERY = 15.0, 4.0
"""Mean steps between new conversations."""
ARGUMENTS = (
    *("--page-size", str(PAGE), "--max-running-requests", "16", "--context-length", "2048"),
    *("--chunked-prefill-size", "2048", "--log-level", "error"),
)
_SHOWN = (0.25, 0.5, 1, 2, 4)


class Reader:
    """The exporter, which knows the events alone, and sums of the lookups beside it."""

    def __init__(self, observer: Any) -> None:
        self.cache = Cache()
        self.queried = self.hits = self.preemptions = 0
        self._subscription = observer.outlet.bus.subscribe(1 << 20)
        self._subscription.request_snapshot()
        observer.outlet.serve(lambda: True)  # the pool is still empty
        self.look()

    def look(self) -> None:
        """Follow what was sent."""
        while (taken := self._subscription.take()) is not None:
            batch, lost = taken
            assert not lost
            again, _ = decode_batch(encode_batch(batch))
            self.cache.on_batch(again)
            for event in again.events:
                if isinstance(event, PrefixLookup) and not event.resumed:
                    self.queried += len(event.hashes)
                    self.hits += event.hit_blocks
                self.preemptions += isinstance(event, RequestPreempted)


def run_no_model(scheduler: Any) -> None:
    """Let each token follow from the one before and its place: the same at every size."""
    import torch
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.managers.utils import GenerationBatchResult

    def forward(self: Any, batch: Any, **_: Any) -> Any:
        last = batch.input_ids
        if batch.forward_mode.is_extend():
            last = last[torch.tensor(batch.extend_lens).cumsum(0) - 1]
        return GenerationBatchResult(
            logits_output=LogitsProcessorOutput(next_token_logits=None),
            next_token_ids=Conversations.next_token(last.long(), batch.seq_lens.long()),
        )

    worker = scheduler.tp_worker
    worker.forward_batch_generation = MethodType(forward, worker)


def shares(curve: Curve | None) -> dict[str, float] | None:
    """Share of the blocks looked up that pools of other sizes would find, by scale."""
    if curve is None:
        return None
    return {
        f"{point.scale:g}": point.hit_blocks / point.queried_blocks
        for point in curve.points
        if point.scale in _SHOWN
    }


def run(model: str, requests: int, case: str) -> dict[str, Any]:
    """One case, in this process."""
    policy, pages, *queue = case.split("-")
    size = ("--max-total-tokens", str(int(pages) * PAGE), "--radix-eviction-policy", policy)
    scheduler = build_scheduler(model, (*ARGUMENTS, *size))
    from kvscope_events.observers.sglang import plugin

    observer = plugin.current()
    assert observer is not None, "no observer"
    run_no_model(scheduler)
    reader = Reader(observer)
    load = Conversations(requests, every=QUEUES_EVERY if queue else EVERY)
    put_between(scheduler, load)
    processed = scheduler.process_batch_result

    def process(*arguments: Any, **keywords: Any) -> Any:
        result = processed(*arguments, **keywords)
        reader.look()
        return result

    scheduler.process_batch_result = process
    scheduler.run_event_loop()
    whatif = reader.cache.whatif
    published, objection = shares(whatif.curve(None)), whatif.objection
    whatif.self_check.is_counted = False  # what it holds back, too
    return {
        "case": case,
        "live": observer.live,
        "differences": observer.differences,
        "finished": load.finished,
        "longest_queue": load.longest_queue,
        "preemptions": reader.preemptions,
        "queried": reader.queried,
        "found": reader.hits / reader.queried,
        "published": published,
        "objection": objection,
        "predicted": shares(whatif.curve(None)),
    }


def main() -> None:
    model, requests, *cases = sys.argv[1:]
    import sglang.srt.managers.scheduler  # noqa: F401  # once, for all cases

    for case in cases:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        try:
            print("FOUND", json.dumps(run(model, int(requests), case)), flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)


if __name__ == "__main__":
    main()
