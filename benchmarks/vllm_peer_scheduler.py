"""One variant of `vllm_scheduler_cost`: a real scheduler without a model, in a process of its own.

Arguments: the variant, the mode (`tests.vllm.scheduler.Driver`), a checkpoint, the number of
blocks, a folder for sockets. Reads one measurement a line (JSON), answers with its figures. Time is
that of the CPU, on the thread that schedules; what other threads of the process take is reported
beside it.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

VARIANTS = ("bare", "observed", "residency metrics", "event publisher")
DECODE_PROMPT = 64
LONGEST = 8192
WARM_STEPS = 4


class NoGrammar:
    """Asked for each sequence in each step; a mock would cost more than the scheduler does."""

    accept_tokens = staticmethod(lambda *_: True)
    should_advance = staticmethod(lambda *_: False)


class Peer:
    """A driver of a scheduler, and how long its calls take."""

    def __init__(self, variant: str, mode: str, model: str, blocks: int, folder: Path) -> None:
        from vllm.config import KVEventsConfig

        from kvscope_events.observers.vllm import plugin
        from tests.vllm.scheduler import Driver

        further: dict[str, Any] = {"max_model_len": LONGEST, "max_num_batched_tokens": 2 * LONGEST}
        if variant == "observed":
            plugin.install()
        elif variant == "residency metrics":
            further |= {"kv_cache_metrics": True, "kv_cache_metrics_sample": 1.0}
        elif variant == "event publisher":
            further["kv_events_config"] = KVEventsConfig(
                enable_kv_cache_events=True, publisher="zmq", endpoint=f"ipc://{folder}/kv.sock"
            )
        self.driver = Driver(mode, model, blocks, seed=1, max_seqs=512, **further)
        self.driver.scheduler.structured_output_manager = NoGrammar()
        gc.collect()
        gc.freeze()  # as vLLM's engine core does
        assert (plugin.site.observer is not None) == (variant == "observed")
        self.site = plugin.site
        if plugin.site.observer is not None:
            self.obey: Any = plugin.site.observer.outlet._publisher.obey
        self.steps: list[int] = []
        """CPU nanoseconds of each measured step."""

    def decode(self, sequences: int, steps: int) -> dict[str, float]:
        """CPU microseconds of a step in which each sequence produces a token."""
        driver = self.driver
        for number in range(sequences):
            # Different lengths, so that as many sequences need a block in each step.
            prompt = driver.tokens(DECODE_PROMPT + number % 16)
            driver.add(prompt, max_tokens=steps + 2 * WARM_STEPS + 8)
        for _ in range(WARM_STEPS):
            self._step()
        assert len(driver.scheduler.running) == sequences
        own, whole = self._spent(steps)
        driver.abort(everything=True)
        self._step()
        return {"own": own / steps, "whole": whole / steps}

    def prefill(self, blocks: int, requests: int) -> dict[str, float]:
        """CPU microseconds of a step that admits one prompt of this many new blocks and a token."""
        driver, own, whole, freed = self.driver, 0.0, 0.0, 0.0
        for _ in range(requests):
            driver.add(driver.tokens(16 * blocks + 1), max_tokens=64)
            step = self._spent(1)
            own, whole = own + step[0], whole + step[1]
            began = time.thread_time_ns()
            driver.abort(everything=True)
            freed += (time.thread_time_ns() - began) / 1e3
            self._step()
        return {"own": own / requests, "whole": whole / requests, "freed": freed / requests}

    def found(self, blocks: int, requests: int) -> dict[str, float]:
        """CPU microseconds of a step that admits a prompt of which all these blocks are found."""
        driver, own, whole = self.driver, 0.0, 0.0
        prompt = driver.tokens(16 * blocks + 1)
        for number in range(requests + 1):
            driver.add(prompt, max_tokens=64)
            step = self._spent(1)
            if number:
                own, whole = own + step[0], whole + step[1]
            driver.abort(everything=True)
            self._step()
        return {"own": own / requests, "whole": whole / requests}

    def switch(self, on: int) -> dict[str, float]:
        """Take the observer out of this process, or let it go on: between two steps."""
        if (self.site.observer is not None) == bool(on):
            return {}
        self.obey(bool(on))
        for _ in range(2):
            self.prefill(1, 1)
        assert (self.site.observer is not None) == bool(on)
        return {}

    def memory(self) -> dict[str, float]:
        """MiB that this process holds, with every block of the pool full and cached."""
        pool = self.driver.scheduler.kv_cache_manager.block_pool
        for _ in range(pool.num_gpu_blocks // (LONGEST // 16) + 1):
            self.prefill(LONGEST // 16 - 1, 1)
        time.sleep(1.5)  # what is queued has been sent by then
        text = Path("/proc/self/status").read_text()
        return {"mib": int(text.split("VmRSS:")[1].split()[0]) / 1024}

    def _spent(self, steps: int) -> tuple[float, float]:
        """CPU time of this thread and of the process for these steps, in microseconds."""
        own = whole = 0
        for _ in range(steps):
            own_ns, whole_ns = self._step()
            self.steps.append(own_ns)
            own, whole = own + own_ns, whole + whole_ns
        return own / 1e3, whole / 1e3

    def _step(self) -> tuple[int, int]:
        """One step; only the scheduler's two calls are measured."""
        driver, spent, process = self.driver, 0, 0
        began, all_began = time.thread_time_ns(), time.process_time_ns()
        output = driver.scheduler.schedule()
        spent += time.thread_time_ns() - began
        process += time.process_time_ns() - all_began
        result = driver.output_of(output, driver.samples(output))
        began, all_began = time.thread_time_ns(), time.process_time_ns()
        driver.scheduler.update_from_output(output, result)
        spent += time.thread_time_ns() - began
        return spent, process + time.process_time_ns() - all_began


def main() -> None:
    variant, mode, model, blocks, folder = sys.argv[1:]
    os.environ["KVSCOPE_OBSERVER_DIR"] = folder
    peer = Peer(variant, mode, model, int(blocks), Path(folder))
    import vllm

    print(json.dumps({"peer": {"version": vllm.__version__}}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        peer.steps.clear()
        found = getattr(peer, order["what"])(*order["with"])
        if peer.steps:  # what other work on the machine adds is least in the quickest ones
            found["quick"] = sorted(peer.steps)[len(peer.steps) // 20] / 1e3
        if variant == "observed" and order["what"] != "switch":
            assert peer.site.observer is None or peer.site.observer.live
        print(json.dumps({"peer": found}), flush=True)


if __name__ == "__main__":
    main()
