"""The observer of an API server: an application of FastAPI behind uvicorn, with real clients."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastapi
import httpx
import pytest
import uvicorn
from fastapi.responses import StreamingResponse

from kvscope_events.events import AnswerSent, FrontEndSampled, Hello, ObserverStopped
from kvscope_events.observers.endpoints import front_end_endpoint
from kvscope_events.observers.vllm import front_end
from kvscope_events.observers.vllm.answer import Answer, route_of
from kvscope_events.observers.vllm.requests import tenant_of
from kvscope_events.observers.vllm.tenant import MAX_BODY_BYTES, TENANT_VARIABLE
from kvscope_events.observers.vllm.tokenizer import TokenizerQueue
from kvscope_events.tenants import tenant_digest
from kvscope_events.wire.subscriber import WireSubscriber
from kvscope_exporter.state import FrontEnd
from tests.observers.workers import Worker, Wrapper
from tests.support.waiting import wait_for

PATH = "/v1/completions"
PAUSE = 0.15


class Client:
    """The part of vLLM's AsyncLLM that matters here: it hands requests on, and takes outputs."""

    def __init__(self) -> None:
        self.vllm_config = Wrapper(Worker()).vllm_config
        self.output_processor = Processor()
        self.renderer = SimpleNamespace(_executor=ThreadPoolExecutor(1))
        self.added: list[str] = []
        self.tenants: list[str] = []
        self.tasks: list[asyncio.Task[str]] = []

    async def render(self) -> None:
        """As vLLM does: in an executor, whose `submit` the event loop calls."""
        executor = self.renderer._executor
        await asyncio.get_running_loop().run_in_executor(executor, time.sleep, PAUSE)

    async def _add_request(self, request: Any, prompt: str | None) -> str:
        await asyncio.sleep(PAUSE)
        self.added.append(request.request_id)
        self.tenants.append(tenant_of(request))
        return "added"

    async def _later(self, request: Any) -> str:
        await asyncio.sleep(PAUSE)
        return await self._add_request(request, None)


class Processor:
    """Takes the engine's outputs."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def process_outputs(
        self, engine_core_outputs: list[Any], engine_core_timestamp: float | None = None
    ) -> int:
        self.taken += [output.request_id for output in engine_core_outputs]
        return len(self.taken)


def application(client: Client) -> fastapi.FastAPI:
    made = fastapi.FastAPI()
    made.state.engine_client = client

    @made.post(PATH)
    async def completion(request: fastapi.Request) -> Any:
        kind = (await request.json())["kind"]
        if kind == "limit":
            raise fastapi.HTTPException(429)
        if kind == "defect":
            raise ZeroDivisionError
        if kind == "text":
            await client.render()
            kind += str(len(client.added))
        if kind == "waits":  # as vLLM does for an answer that is not streamed
            while (await request.receive())["type"] != "http.disconnect":
                continue
            return None
        given = SimpleNamespace(request_id=kind, trace_headers=None, cache_salt="salt")
        if kind == "background":
            client.tasks.append(asyncio.create_task(client._later(given)))
            return "queued"
        assert await client._add_request(given, None) == "added"

        async def parts() -> AsyncIterator[str]:
            await asyncio.sleep(PAUSE)
            yield "first"
            done = SimpleNamespace(request_id=kind, finish_reason="stop")
            assert client.output_processor.process_outputs([done], time.monotonic()) > 0
            await asyncio.sleep(30 if kind == "long" else PAUSE)
            yield "last"

        return StreamingResponse(parts())

    return made


class Served:
    """An observed application, and what its stream says."""

    def __init__(self, url: str, client: Client) -> None:
        self.url, self.client = url, client
        self.reader = WireSubscriber(front_end_endpoint(0))
        self.events: list[Any] = []

    def post(self, kind: str) -> int:
        body = {"kind": kind}
        return httpx.post(f"{self.url}{PATH}", json=body, timeout=30).status_code

    def tenant(self, headers: Mapping[str, str] | None = None, **body: Any) -> str:
        """The tenant of the request that the engine gets for this one."""
        body = {"kind": "stream", **body}
        answer = httpx.post(f"{self.url}{PATH}", json=body, headers=headers, timeout=30)
        assert answer.text == "firstlast"
        return self.client.tenants[-1]

    def answers(self, count: int) -> list[AnswerSent]:
        """All answers, once there are `count`."""

        def found() -> list[AnswerSent]:
            while (taken := self.reader.take()) is not None:
                self.events += taken.batch.events
            return [event for event in self.events if isinstance(event, AnswerSent)]

        wait_for(lambda: len(found()) >= count, f"{count} answers")
        return found()


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """Its parameter: where requests name their tenant."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv(TENANT_VARIABLE, getattr(request, "param", ""))
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", str(tmp_path))
    monkeypatch.setattr(fastapi.FastAPI, "__call__", fastapi.FastAPI.__call__)
    front_end.install_front_end()
    front_end.install_front_end()  # a second time it changes nothing
    client = Client()
    config = uvicorn.Config(application(client), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started, "it serves")
    port = server.servers[0].sockets[0].getsockname()[1]
    found = Served(f"http://127.0.0.1:{port}", client)
    yield found
    found.reader.close()
    server.should_exit = True
    thread.join()
    for one in front_end._front_ends:
        one.stop()
    front_end._front_ends.clear()


def test_answers_are_those_that_clients_got(served: Served) -> None:
    began = time.monotonic()
    with httpx.stream("POST", f"{served.url}{PATH}", json={"kind": "stream"}) as answer:
        first, *_ = [time.monotonic() - began for _ in answer.iter_raw()]
    seen = time.monotonic() - began
    assert [served.post(kind) for kind in ("limit", "defect")] == [429, 500]
    assert httpx.get(f"{served.url}/docs", timeout=30).status_code == 200  # without a body
    stream, limit, defect = served.answers(3)
    hello = next(event for event in served.events if isinstance(event, Hello))
    assert (hello.worker, hello.model_name, hello.server) == ("api-0", "tiny", "vllm")
    assert (stream.route, stream.status, stream.is_complete) == ("generation", 200, True)
    assert stream.first_ns is not None
    assert stream.before_ns is not None
    assert stream.after_ns is not None
    assert PAUSE <= stream.before_ns / 1e9 <= stream.first_ns / 1e9 - PAUSE
    assert stream.first_ns / 1e9 <= first
    assert PAUSE <= stream.after_ns / 1e9 <= stream.duration_ns / 1e9 - 2 * PAUSE
    assert stream.duration_ns / 1e9 <= seen
    for sent, status in ((limit, 429), (defect, 500)):
        assert (sent.status, sent.is_complete) == (status, True)
        assert sent.first_ns is sent.before_ns is sent.after_ns is None
    assert served.client.added == served.client.output_processor.taken == ["stream"]


def test_an_api_server_that_has_answered_nothing_says_that_nothing_waits(served: Served) -> None:
    """A reader from the first batch on asks for no state."""

    def sampled() -> list[Any]:
        served.answers(0)
        return [event for event in served.events if isinstance(event, FrontEndSampled)]

    wait_for(lambda: sampled() == [FrontEndSampled(0, 0, 0, 0)], "before any request")


def test_prompts_that_wait_for_the_tokenizer_are_counted_before_the_engine(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        statuses = pool.map(served.post, ["text"] * 8)
        answers = served.answers(8)
        assert set(statuses) == {200}
    samples = [event for event in served.events if isinstance(event, FrontEndSampled)]
    assert max(sample.before_engine for sample in samples) >= 2
    assert max(sample.in_engine for sample in samples) >= 1
    queues = [sample.tokenizer_queue or 0 for sample in samples]
    assert 0 < max(queues) < 8, "one has the thread"
    waited = sorted((answer.tokenizer_queue_ns or 0) / 1e9 for answer in answers)
    assert waited[0] < PAUSE < waited[-1]
    for answer in answers:
        assert answer.tokenizer_ns is not None
        assert answer.tokenizer_queue_ns is not None
        assert answer.before_ns is not None
        assert answer.tokenizer_ns / 1e9 >= PAUSE
        assert answer.tokenizer_queue_ns + answer.tokenizer_ns <= answer.before_ns

    def last() -> FrontEndSampled:
        served.answers(8)
        return [event for event in served.events if isinstance(event, FrontEndSampled)][-1]

    wait_for(lambda: last() == FrontEndSampled(0, 0, 0, 0), "all are answered")


def test_a_prompt_whose_client_leaves_the_queue_for_the_tokenizer_no_longer_waits() -> None:
    queue = TokenizerQueue()
    client: Any = Client()
    queue.follow(client, lambda: Answer(PATH))
    submit = client.renderer._executor.submit
    first, second = submit(time.sleep, PAUSE), submit(time.sleep, 30)
    assert queue.length in (1, 2)
    assert second.cancel()
    first.result()
    assert queue.length == 0


@pytest.mark.parametrize("served", ["X-User"], indirect=True)
def test_a_header_names_the_tenant_by_its_hash_where_that_is_wanted(served: Served) -> None:
    headers = {"X-User": "ann", "Authorization": "Bearer key"}
    assert served.tenant(headers=headers) == tenant_digest("ann")
    headers.pop("X-User")
    assert served.tenant(headers=headers, user="ben") == tenant_digest("salt"), "as without ours"


def test_neither_header_nor_body_names_a_tenant_unasked(served: Served) -> None:
    assert served.tenant(headers={"X-User": "ann"}, user="ben") == tenant_digest("salt")


@pytest.mark.parametrize("served", ["user"], indirect=True)
def test_the_body_names_the_tenant_by_the_hash_of_its_user_where_that_is_wanted(
    served: Served,
) -> None:
    assert served.tenant(headers={"user": "ann"}, user="ben") == tenant_digest("ben")
    assert served.tenant(prompt="x" * 300_000, user="zoë") == tenant_digest("zoë"), "in many parts"
    for unnamed in ({}, {"user": None}, {"user": ""}, {"user": 3}, {"metadata": {"user": "ann"}}):
        assert served.tenant(**unnamed) == tenant_digest("salt"), unnamed
    assert served.tenant(prompt="x" * MAX_BODY_BYTES, user="ben") == tenant_digest("salt")
    for refused in (b'{"user": "ann"', b'{"prompt": ' + b"[" * 5000):
        assert httpx.post(f"{served.url}{PATH}", content=refused).status_code == 500
    assert len(served.answers(10)) == 10, "none has switched it off"


@pytest.mark.parametrize("served", ["user"], indirect=True)
def test_a_fault_while_a_body_is_read_ends_no_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope_events.observers.vllm.tenant._user", lambda body: body["user"])
    assert served.tenant(user="ben") == tenant_digest("salt")
    wait_for(lambda: served.answers(0) == [] and _stopped(served, "TypeError"), "it has stopped")


@pytest.mark.parametrize("served", ["X-User"], indirect=True)
@pytest.mark.parametrize("part", ["tenant.tenant_digest", "front_end._name_tenant"])
def test_a_fault_while_a_tenant_is_named_ends_no_request(
    served: Served, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(f"kvscope_events.observers.vllm.{part}", _broken)
    assert served.tenant(headers={"X-User": "ann"}) == tenant_digest("salt")
    wait_for(lambda: served.answers(0) == [] and _stopped(served, "broken on purpose"))


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_stream_that_cannot_be_written_ends_no_request(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (observed,) = front_end._front_ends
    monkeypatch.setattr(observed._outlet, "send", _broken)
    monkeypatch.setattr(observed._outlet, "serve", _broken)
    assert [served.post(kind) for kind in ("limit", "stream", "stream")] == [429, 200, 200]
    assert "the page does not show that" in caplog.text


def test_an_api_server_whose_configuration_is_unknown_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", str(tmp_path))
    other = SimpleNamespace(state=SimpleNamespace(engine_client=SimpleNamespace()))
    front_end._begin(other)
    gc.collect()  # would wait for ever for a socket that was left open
    assert front_end._front_ends == []
    assert list(tmp_path.glob("*.sock")) == []
    assert "this API server is not observed: AttributeError" in caplog.text


def test_a_second_api_server_takes_the_next_name(served: Served) -> None:
    number, outlet = front_end._outlet()
    outlet.stop()
    assert number == 1


def test_a_client_that_leaves_has_no_answer(served: Served) -> None:
    with (
        httpx.Client(timeout=30) as client,
        client.stream("POST", f"{served.url}{PATH}", json={"kind": "long"}) as answer,
    ):
        assert next(answer.iter_text()) == "first"
    (left,) = served.answers(1)
    assert (left.status, left.is_complete, left.after_ns) == (200, False, None)
    fold = FrontEnd()
    fold.apply(left)
    assert fold.answers["generation", "left"] == sum(fold.answers.values()) == 1


def test_a_client_that_leaves_before_an_answer_that_is_not_streamed_has_none(
    served: Served,
) -> None:
    """vLLM answers it all the same: 200, and nothing in it."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{served.url}{PATH}", json={"kind": "waits"}, timeout=PAUSE)
    (left,) = served.answers(1)
    assert (left.status, left.is_complete, left.first_ns) == (200, False, None)


def test_requests_handed_over_after_their_answer_are_not_kept(served: Served) -> None:
    assert served.post("background") == 200
    wait_for(lambda: served.client.added == ["background"])
    (observed,) = front_end._front_ends
    assert observed._by_request == {}


def test_a_fault_of_ours_ends_the_stream_and_no_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope_events.observers.vllm.answer.Answer.sent", _broken)
    assert [served.post(kind) for kind in ("limit", "stream")] == [429, 200]
    wait_for(lambda: served.answers(0) == [] and _stopped(served, "broken on purpose"))


def _broken(*_: Any) -> None:
    raise LookupError("broken on purpose")


def _stopped(served: Served, reason: str) -> bool:
    return any(
        isinstance(event, ObserverStopped) and reason in event.reason for event in served.events
    )


def test_paths_that_generate_tokens_are_told_from_others() -> None:
    for path in ("/prefix/v1/chat/completions", "/v1/chat/completions/batch", "/cohere/v2/chat"):
        assert route_of(path) == "generation"
    assert route_of("/v1/embeddings") == "other"
