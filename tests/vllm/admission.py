"""Drives a vLLM's scheduler, and compares why each step admitted no more: as the observer says, and
by the line at which `schedule` left its loop over the requests that wait.

    python -m tests.vllm.admission MODEL

in the Python of a vLLM, as tests.vllm.drive. Prints a line for each scenario: the reasons in their
order, each with what was deferred; and what was wrong.
"""

import ast
import inspect
import json
import sys
import textwrap
from functools import partial
from typing import Any

from kvscope_events.events import StepCompleted, StepScheduled
from tests.vllm.child import in_child
from tests.vllm.scheduler import Driver

_BEGIN = "# Next, schedule the WAITING requests."
_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
_BREAKS = {
    "not request_queue": "empty",
    "max_num_": "unexplained",  # a count of sequences, which are fewer
    "new_blocks is None": "blocks",
    "can_fit": "blocks",
}
"""Conditions under which it leaves the loop; any other is for want of tokens."""


class Left:
    """The place where the last call of `schedule` left its loop."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        original = inspect.unwrap(type(scheduler).schedule)
        self._code = original.__code__
        source, first = inspect.getsourcelines(original)
        begin = first + [line.strip() for line in source].index(_BEGIN)
        self._breaks: dict[int, str] = {}  # by line: the condition
        for node in ast.walk(ast.parse(textwrap.dedent("".join(source)))):
            for inner in node.body if isinstance(node, ast.If) else ():
                line = inner.lineno + first - 1
                if isinstance(inner, ast.Break) and line > begin:
                    self._breaks[line] = ast.unparse(node.test)  # type: ignore[attr-defined]
        self._condition = ""
        self.reason = ""

    def trace(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is not self._code:
            return None
        if event == "call":
            self._condition = ""
        elif event == "line":
            self._condition = self._breaks.get(frame.f_lineno, self._condition)
        elif event == "return":
            self.reason = self._found(frame.f_locals)
        return self.trace

    def _found(self, names: dict[str, Any]) -> str:
        scheduler = self._scheduler
        left = [r for queue in _QUEUES for r in getattr(scheduler, queue, ())]
        if all(request.status.name.startswith("WAITING_FOR_") for request in left):
            return "empty"
        if getattr(scheduler, "_pause_state", 0):
            return "paused"
        if len(scheduler.running) >= scheduler.max_num_running_reqs:
            return "sequences"
        if names["preempted_reqs"]:
            return "blocks"
        reason = next((r for text, r in _BREAKS.items() if text in self._condition), None)
        if reason is not None:
            return reason
        return "tokens" if self._condition or names["token_budget"] <= 0 else "empty"


class Scene:
    """A driven scheduler, its observer, and what is said of each step."""

    def __init__(self, mode: str, model: str, blocks: int = 200, **options: Any) -> None:
        from kvscope_events.observers.vllm import plugin, scheduler

        scheduler.EMPTY_STEP_NS = 0  # each step is told
        plugin.install()
        self.driver = Driver(mode, model, blocks, 0, **options)
        assert plugin.site.observer is not None
        self._events = plugin.site.observer.outlet.bus.subscribe(1 << 16)
        self._left = Left(self.driver.scheduler)
        self._expected: list[str] = []

    def add(self, *prompts: int, output: int = 40, **further: Any) -> "Scene":
        """Requests with prompts of so many tokens."""
        for tokens in prompts:
            self.driver.add(self.driver.tokens(tokens), output, **further)
        return self

    def steps(self, count: int = 1) -> "Scene":
        for _ in range(count):
            sys.settrace(self._left.trace)
            self.driver.step()
            sys.settrace(None)
            self._expected.append(self._left.reason)
        return self

    def result(self) -> dict[str, Any]:
        while self.driver.queue:
            self.driver.finish_step()
        told: list[StepCompleted] = []
        chunks: list[int] = []
        while (taken := self._events.take()) is not None:
            for event in taken[0].events:
                if isinstance(event, StepScheduled):
                    chunks.append(sum(event.tokens))
                elif isinstance(event, StepCompleted):
                    told.append(event)
        stops = [event.admission_stop for event in told]
        return {
            "stops": stops,
            "wrong": [
                (step, *both)
                for step, both in enumerate(zip(stops, self._expected, strict=True))
                if both[0] != both[1]
            ],
            "chunks_agree": [*filter(None, chunks)]
            == [e.prefill_tokens for e in told if e.prefill_tokens],
            "deferred": [
                list(zip(event.deferred, event.deferred_by, strict=True)) for event in told
            ],
        }


def slots(model: str) -> Scene:
    return Scene("sync", model, max_seqs=2).add(20, 20, 20, output=4).steps(6)


def tokens(model: str) -> Scene:
    return Scene("sync", model).add(300, 50, output=4).steps(4)


def whole(model: str) -> Scene:
    options = {"enable_chunked_prefill": False, "max_num_batched_tokens": 512}
    return Scene("sync", model, **options).add(300, 300, output=2).steps(2)


def blocks(model: str) -> Scene:
    return Scene("sync", model, 26, max_num_batched_tokens=512).add(200, 300, 5, output=4).steps(6)


def preempted(model: str) -> Scene:
    return Scene("sync", model, 20, max_num_batched_tokens=512).add(140, 140, output=60).steps(40)


def grammar(model: str) -> Scene:
    from vllm.sampling_params import StructuredOutputsParams

    scene = Scene("sync", model, max_seqs=2).add(20)
    scene.add(20, structured_outputs=StructuredOutputsParams(regex="a+")).steps(2)
    for request in scene.driver.scheduler.requests.values():
        if request.structured_output_request is not None:
            request.structured_output_request.grammar = scene.driver.grammar
    return scene.steps(2)


def adapters(model: str) -> Scene:
    from vllm.lora.request import LoRARequest

    scene = Scene("sync", model, enable_lora=True, max_loras=1)
    for number in (1, 2, 2):
        scene.add(20, lora_request=LoRARequest(f"a{number}", number, "/"), output=3)
    return scene.add(20).steps(4)


def paused(model: str) -> Scene:
    from vllm.v1.core.sched.interface import PauseState

    scene = Scene("sync", model).add(20).steps()
    scene.driver.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    scene.add(20).steps(2)
    scene.driver.scheduler.set_pause_state(PauseState.UNPAUSED)
    return scene.steps()


def stuck(model: str) -> Scene:
    """vLLM counts sessions that wait for their client, which hold slots; it lost count of them."""
    scene = Scene("sync", model, max_seqs=2).add(20, output=4)
    scene.driver.scheduler.num_waiting_for_streaming_input = 2
    return scene.steps(2)


def transfer(model: str) -> Scene:
    from vllm.config import KVTransferConfig

    config = KVTransferConfig(
        kv_connector="DelayingConnector",
        kv_connector_module_path="tests.vllm.holding",
        kv_connector_extra_config={"give_up_seconds": 1},
        kv_role="kv_both",
    )
    return Scene("sync", model, kv_transfer_config=config).add(41, 40, 51).steps(3)


def at_random(mode: str, model: str) -> Scene:
    scene = Scene(mode, model, 60)
    for _ in range(150):
        scene.driver.load()
        scene.steps()
    return scene


BY_HAND = (slots, tokens, whole, blocks, preempted, grammar, adapters, paused, stuck, transfer)
MODES = ("sync", "async", "prio", "hybrid-async", "spec")
SCENES: dict[str, Any] = {scene.__name__: scene for scene in BY_HAND}
SCENES |= {mode: partial(at_random, mode) for mode in MODES}


def main() -> None:
    model, *names = sys.argv[1:]
    for name in names or SCENES:
        found = in_child(lambda name=name: SCENES[name](model).result())
        print(json.dumps({"scene": name, **found}), flush=True)


if __name__ == "__main__":
    main()
