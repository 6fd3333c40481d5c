"""An SGLang's scheduler and model without its server, with the observer, which can be taken away.

Serves the orders of `tests.vllm.offline`, with the same answers. Taken away, the methods are
SGLang's own; its tree goes on to name pages of 16 tokens, as one in Rust cannot be switched back.
"""

import json
import sys
import time
from random import Random
from typing import Any

from tests.sglang.drive import build_scheduler, put_between
from tests.sglang.load import make_request

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 64
MEANS = ("nothing", "observer")
ARGUMENTS = (
    *("--page-size", "16", "--max-total-tokens", "32768", "--max-running-requests", "64"),
    *("--dtype", "float32", "--log-level", "error"),
)


class Batch:
    """Stands for the scheduler's sockets until all is answered."""

    def __init__(self, requests: list[Any]) -> None:
        self.produced = 0
        self.elapsed = self.cpu = 0.0
        """Seconds from the first pass of the loop to the last answer."""
        self._pending, self._left = requests, len(requests)
        self._began = time.perf_counter(), time.process_time()

    def receive(self, scheduler: Any) -> list[Any]:
        pending, self._pending = self._pending, []
        if not pending and not self._left:
            scheduler.gracefully_exit = scheduler.is_fully_idle()
        return pending

    def reply(self, output: Any) -> None:
        reasons = getattr(output, "finished_reasons", None)
        if reasons is None:
            self._left -= 1  # an answer to something else than a prompt
            return
        for place, reason in enumerate(reasons):
            if reason is not None:
                self._left -= 1
                self.produced += output.completion_tokens[place]
        self.elapsed = time.perf_counter() - self._began[0]
        self.cpu = time.process_time() - self._began[1]


def run(scheduler: Any, requests: list[Any]) -> Batch:
    """Let SGLang's own loop serve these."""
    batch = Batch(requests)
    put_between(scheduler, batch)
    scheduler.gracefully_exit = False
    scheduler.run_event_loop()
    return batch


def switch(scheduler: Any, means: str, *, on: bool) -> None:
    """Take the observer away, or put it back; nothing runs, and the tree is empty."""
    from kvscope_events.observers.sglang import plugin

    observer = plugin.current()
    if means == "nothing":
        assert observer is None
        return
    assert observer is not None
    assert observer.live
    assert not observer.differences
    patches = observer.patches
    if on and not patches.live:
        patches.live = True
        patches.apply(observer._methods)
    elif not on:
        patches.restore()
        scheduler.tree_cache.take_events()


def serve(scheduler: Any, sequences: int, seed: int) -> dict[str, float]:
    """Output tokens a second of one batch of fresh prompts, by the second's kind."""
    random = Random(seed)
    requests = []
    for number in range(sequences):
        ids = [random.randrange(256) for _ in range(PROMPT_TOKENS)]
        requests.append(make_request(f"{seed}-{number}", ids, OUTPUT_TOKENS, ignore_eos=True))
    batch = run(scheduler, requests)
    assert batch.produced == sequences * OUTPUT_TOKENS
    return {"elapsed": batch.produced / batch.elapsed, "cpu": batch.produced / batch.cpu}


def main() -> None:
    means, model, _ = sys.argv[1:]
    scheduler = build_scheduler(model, ARGUMENTS)
    from sglang.srt.managers.io_struct import FlushCacheReqInput

    print(json.dumps({"peer": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        switch(scheduler, means, on=order["on"])
        rates = serve(scheduler, order["sequences"], order["seed"])
        run(scheduler, [FlushCacheReqInput()])
        print(json.dumps({"peer": rates}), flush=True)


if __name__ == "__main__":
    main()
