"""A fault of one call affects only that call: its client gets an error, the others their tokens."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from typing import Any

import pytest

from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.request import Request, Sequence
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.generation import Piece, StopPattern, generate
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from tests.server.test_faults import in_background
from tests.support.faults import FaultyRunner
from tests.support.server import Server, greedy
from tests.support.sse import chunks, joined
from tests.support.waiting import wait_for

BAD = "!"
"""Prompts that begin so are those that break something."""
NUM_TOKENS = 60


def bodies(**changes: Any) -> list[dict[str, Any]]:
    """Good and bad ones, whole, streamed and of several choices."""
    return [
        greedy(prompt, max_tokens=NUM_TOKENS, **changes) | form
        for prompt in ("abc", f"{BAD}abc", "abcd" * 20)
        for form in ({}, {"stream": True}, {"n": 2})
    ]


def check(server: Server, answers: list[Any], right: dict[str, list[int]]) -> None:
    """The bad ones have errors, the others the tokens of an undisturbed server."""
    for body, answer in zip(bodies(), answers, strict=True):
        streamed = body.get("stream", False)
        if body["prompt"].startswith(BAD):
            assert answer.status_code == (200 if streamed else 500)
            error = chunks(answer.text.splitlines())[-1] if streamed else answer.json()
            assert (error["error"]["type"], error["error"]["code"]) == ("internal_error", 500)
            continue
        assert answer.status_code == 200, answer.text
        choices = (
            joined(chunks(answer.text.splitlines())).values()
            if streamed
            else answer.json()["choices"]
        )
        for choice in choices:
            assert choice["token_ids"] == right[body["prompt"]]
    assert server.client.get("/health").status_code == 200
    server.wait_until_free()


@pytest.fixture
def right(own_server: Server) -> dict[str, list[int]]:
    """The tokens of the good prompts, one after the other."""
    prompts = {body["prompt"] for body in bodies() if not body["prompt"].startswith(BAD)}
    return {
        prompt: own_server.complete(prompt, max_tokens=NUM_TOKENS)["choices"][0]["token_ids"]
        for prompt in prompts
    }


@pytest.mark.parametrize("at", [0, 7], ids=["in its prefill", "in its answer"])
def test_a_call_that_raises_in_a_step(
    own_server: Server, right: dict[str, list[int]], at: int, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(row: ScheduledSequence) -> bool:
        sequence = row.sequence
        return sequence.tokens[0] == ord(BAD) and sequence.num_output_tokens == at

    own_server.reins.run_by(lambda runner: FaultyRunner(runner, raises, after=True))
    with caplog.at_level(logging.ERROR), in_background(own_server, *bodies()) as futures:
        answers = [future.result() for future in futures]
    check(own_server, answers, right)
    assert own_server.metric("kvscope_requests_finished_total", reason="error") == 3


class Speechless:
    """A tokenizer, and a detokenizer of it, that fails on the fifth token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._detokenizer = tokenizer.detokenizer()
        self._num_tokens = 0

    def detokenizer(self) -> Any:
        return self

    def add(self, token_ids: Iterable[int]) -> str:
        self._num_tokens += 1
        if self._num_tokens == 5:
            raise KeyError("a token without text")
        return self._detokenizer.add(token_ids)


def test_a_call_whose_text_cannot_be_made(
    own_server: Server,
    right: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def generate_or_fail(
        dispatcher: Dispatcher,
        tokenizer: Tokenizer,
        sequence: Sequence,
        stops: list[StopPattern],
    ) -> AsyncIterator[Piece]:
        used: Any = Speechless(tokenizer) if sequence.tokens[0] == ord(BAD) else tokenizer
        return generate(dispatcher, used, sequence, stops)

    monkeypatch.setattr("kvscope_engine.server.answer.generate", generate_or_fail)
    with caplog.at_level(logging.ERROR), in_background(own_server, *bodies()) as futures:
        answers = [future.result() for future in futures]
    check(own_server, answers, right)
    assert own_server.metric("kvscope_requests_finished_total", reason="abort") == 3


def test_a_call_that_cannot_be_added(
    own_server: Server,
    right: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop: Any = own_server.engine.loop
    arrived = loop._scheduler.requests.arrived

    def refuse(request: Request) -> None:
        if request.sequences[0].tokens[0] == ord(BAD):
            raise ValueError("nobody knows what this is")
        arrived(request)

    monkeypatch.setattr(loop._scheduler.requests, "arrived", refuse)
    with caplog.at_level(logging.ERROR), in_background(own_server, *bodies()) as futures:
        answers = [future.result() for future in futures]
    check(own_server, answers, right)
    assert own_server.engine.loop.num_in_flight == 0
    assert own_server.metric("kvscope_requests_rejected_total", reason="invalid") == 3


def test_who_ended_in_a_step_that_failed_half_way_hears_of_the_failure(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The step's outputs are lost with it."""

    class LosesTheLast(FaultyRunner):
        def execute(self, plan: StepPlan) -> list[SampledToken | None]:
            return super().execute(plan)[: max(1, len(plan.rows) - 1)]

    server = own_server
    loop: Any = server.engine.loop
    server.reins.run_by(lambda runner: LosesTheLast(runner, lambda row: False))
    first, ends, goes_on = (greedy("abc", max_tokens=count) for count in (60, 1, 60))
    with caplog.at_level(logging.CRITICAL), ExitStack() as stack:
        stack.enter_context(server.reins.held())
        futures: list[Any] = []

        def all_wait() -> bool:
            return bool(loop.num_in_flight == len(futures))

        for body in (first, ends, goes_on):
            futures += stack.enter_context(in_background(server, body))
            wait_for(all_wait, "it waits")
        server.reins.let_go()
        assert [future.result().status_code for future in futures] == [500, 500, 500]
    assert server.client.get("/health").status_code == 503
