"""The server in this process, as `kvscope engine serve` puts it together: real model, real HTTP.

The runner can be held between two steps, given its output, or made to fail.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.build import Engine, build_engine
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig
from kvscope_engine.runner import Runner
from kvscope_engine.server.app import ApiConfig, create_app
from kvscope_engine.server.control import control_router
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.bus import EventBus
from kvscope_events.events import DeviceMemorySampled
from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.sources.listener import Listener
from kvscope_exporter.targets.exporter import Exporter, in_process
from kvscope_exporter.web.metrics import metrics_router
from kvscope_exporter.web.requests import CountedRequests, RequestCounts
from tests.support.waiting import WAIT_SECONDS, wait_for

MAX_MODEL_LEN = 512
NUM_BLOCKS = 128


class Reins:
    """Between the step loop and the model."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._go = threading.Event()
        self._go.set()
        self.failure: Exception | None = None
        """Raised by the next step."""
        self.says: bytes | None = None
        """Replies instead of the model's; the demo model's token is a byte. Repeats."""
        self.ends_after: int | None = None
        """Tokens before an end-of-sequence token."""
        self.num_running = 0
        """Sequences of the last step that began."""

    def self_test(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._runner.self_test()

    def drop_caches(self) -> None:
        self._runner.drop_caches()

    def sample_memory(self) -> DeviceMemorySampled:
        return self._runner.sample_memory()

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        self.num_running = len(plan.rows)
        self._go.wait()
        if self.failure is not None:
            raise self.failure
        tokens = self._runner.execute(plan)
        for index, (row, token) in enumerate(zip(plan.rows, tokens, strict=False)):
            if token is None:
                continue
            position = row.sequence.num_output_tokens
            if self.says is not None:
                tokens[index] = token._replace(token_id=self.says[position % len(self.says)])
            if position == self.ends_after:
                tokens[index] = token._replace(token_id=257)
        return tokens

    @contextmanager
    def held(self) -> Iterator[None]:
        """No step ends meanwhile; the one under way may already have begun.

        num_running is 0 until a step begins, whatever ran before: only then has a request left the
        queue.
        """
        self.num_running = 0
        self._go.clear()
        try:
            yield
        finally:
            self.let_go()

    def let_go(self) -> None:
        """End `held()` early."""
        self._go.set()

    def run_by(self, made_of: Callable[[Runner], Runner]) -> None:
        """Put another runner over the model's."""
        self._runner = made_of(self._runner)


@dataclass
class Server:
    """A running server and its parts."""

    url: str
    client: httpx.Client
    engine: Engine
    exporter: Exporter
    reins: Reins
    pool: BlockPool

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options)

    def complete(self, prompt: object, **body: Any) -> dict[str, Any]:
        """A greedy completion with token ids; fails the test unless it is a 200."""
        response = self.post("/v1/completions", greedy(prompt, **body))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of that name with those labels."""
        return sum(
            sample.value
            for family in self.exporter.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def wait_until_free(self) -> None:
        """Until no block is referenced: within a step or two of the last request's end."""
        wait_for(lambda: self.pool.num_active == 0, "all blocks free")
        self.check_accounts()

    def check_accounts(self) -> None:
        """Nothing runs, nothing is lost, and the exporter's ledger agrees."""
        self.pool.check()
        wait_for(lambda: self.metric("kvscope_requests") == 0, "no request left in the metrics")
        assert self.metric("kvscope_kv_ledger_imbalance_blocks") == 0
        assert self.metric("kvscope_kv_blocks", state="active") == 0
        assert self.metric("kvscope_kv_blocks", state="cached") == self.pool.num_cached
        assert self.metric("kvscope_kv_blocks", state="free") == self.pool.num_free


def greedy(prompt: object, **body: Any) -> dict[str, Any]:
    """A completion request that gives the same tokens each time, and names them."""
    return {
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 16,
        "ignore_eos": True,
        "return_token_ids": True,
    } | body


def make_engine_config(**changes: Any) -> EngineConfig:
    """The demo model with a pool of 128 blocks for sequences of up to 32."""
    settings: dict[str, Any] = {
        "model": ModelConfig(device="cpu"),
        "cache": CacheConfig(num_gpu_blocks_override=NUM_BLOCKS),
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
    }
    return EngineConfig(**(settings | changes))


@contextmanager
def serving(
    config: EngineConfig | None = None,
    api: ApiConfig | None = None,
    listeners: Sequence[Listener] = (),
    recorder: Recorder | None = None,
    machine: Machine | None = None,
) -> Iterator[Server]:
    """A server on a free loopback port, gone again afterwards. listeners: of its events."""
    bus = EventBus()
    engine = build_engine(config or make_engine_config(), bus)
    loop: Any = engine.loop  # its private parts are what a test holds on to
    reins = Reins(loop._step.runner)
    loop._step.runner = reins
    exporter = in_process(
        bus.subscribe(), compat=COMPAT_SETS, listeners=listeners, recorder=recorder
    )
    requests = RequestCounts(Clock())
    exporter.show(machine or Machine(), [requests])
    exporter.start()
    app = create_app(
        engine.dispatcher,
        engine.tokenizer,
        engine.served,
        engine.scheduler,
        api or ApiConfig(),
        [metrics_router(exporter), control_router(engine.dispatcher)],
    )
    server = uvicorn.Server(
        uvicorn.Config(
            CountedRequests(app, requests),
            port=0,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=2,
        )
    )
    thread = threading.Thread(target=server.run, name="uvicorn")
    engine.loop.start()
    thread.start()
    try:
        wait_for(lambda: server.started, "the server listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=WAIT_SECONDS) as client:
            yield Server(url, client, engine, exporter, reins, loop._pool)
    finally:
        reins.let_go()
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        engine.loop.shutdown(0.0)
        exporter.stop()
    assert not thread.is_alive()
