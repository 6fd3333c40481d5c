"""Serves one closed loop by a vLLM's real scheduler and pools of several sizes, without a model.

    python -m tests.vllm.whatif_runs MODE MODEL FOLDER LOAD BLOCKS...

in the Python of a vLLM, with this checkout on PYTHONPATH and KVSCOPE_OBSERVER_DIR set. MODE as in
tests.vllm.drive. LOAD is a JSON object (tests.support.prefix_trees). Keeps the events
of each size in BLOCKS.events, and prints what vLLM counted.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.prefix_trees import Load, drive
from tests.vllm.drive import Driver, in_child
from tests.vllm.kept import keep


class Scheduler:
    """A `Server` of tests.support.prefix_trees; the tokens are random."""

    def __init__(self, mode: str, model: str, num_blocks: int, load: Load) -> None:
        self.driver = Driver(
            mode, model, num_blocks, load.seed, load.clients, max_model_len=load.longest
        )
        self._running: dict[int, Any] = {}

    def submit(self, request: int, prompt: Sequence[int], output_tokens: int) -> None:
        name = f"r{self.driver.requests}"
        self.driver.add(list(prompt), output_tokens)
        self._running[request] = self.driver.scheduler.requests[name]

    def step(self) -> Iterable[tuple[int, Sequence[int]]]:
        driver = self.driver
        output = driver.scheduler.schedule()
        driver.queue.append((output, driver.samples(output)))
        driver.finish_step()
        ended = [number for number, held in self._running.items() if held.is_finished()]
        for number in ended:
            yield number, list(self._running.pop(number).output_token_ids)


def run(mode: str, model: str, file: Path, load: Load, num_blocks: int) -> dict[str, int]:
    """One size; returns vLLM's own counts."""
    from kvscope_events.observers.vllm.plugin import install, site

    install()
    server = Scheduler(mode, model, num_blocks, load)
    observer = site.observer
    assert observer is not None, "it is not observed"
    events = observer.outlet.bus.subscribe(1 << 20)
    events.request_snapshot()
    observer.flush()
    drive(server, load)
    observer.flush()
    keep(events, file)
    return {"blocks": num_blocks, **server.driver.served}


def main() -> None:
    mode, model, folder, text, *sizes = sys.argv[1:]
    load = Load(**json.loads(text))
    for size in sizes:
        file = Path(folder) / f"{size}.events"
        print(json.dumps(in_child(partial(run, mode, model, file, load, int(size)))), flush=True)


if __name__ == "__main__":
    main()
