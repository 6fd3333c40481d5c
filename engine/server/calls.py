"""The parts that both APIs need for a call: readers, workers, limits, answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request as HttpRequest
from fastapi.responses import Response

from engine.config import SchedulerConfig
from engine.model.tokenizer import Tokenizer
from engine.request import Request
from engine.server.answer import Answer, Wording
from engine.server.body import BodyReader
from engine.server.client_limits import ClientLimits, ClientShare
from engine.server.dispatch import Dispatcher
from engine.server.echo import EchoedPrompt
from engine.server.encoding import Encoder
from engine.server.logprobs import TokenNames
from engine.server.protocol import GenerationRequest
from engine.server.requests import RequestFactory, ServedModel
from engine.server.stop_strings import StopPattern
from engine.server.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The parts of the server that every call goes through."""

    dispatcher: Dispatcher
    tokenizer: Tokenizer
    factory: RequestFactory
    reader: BodyReader
    encoder: Encoder
    names: TokenNames
    limits: ClientLimits
    workers: Workers
    """For bodies and texts."""
    templates: Workers
    """For chat templates, which may take seconds."""
    model: str
    limit: int
    """Tokens of one sequence."""

    async def answer(
        self,
        http_request: HttpRequest,
        body: GenerationRequest,
        request: Request,
        wording: Wording,
        share: ClientShare,
        echoes: Sequence[EchoedPrompt] = (),
    ) -> Response:
        """Submit a request and answer it; the client's share is closed when the answer ends.

        echoes: the prompts that its choices begin with, if any.

        Raises the errors of `Dispatcher.submit`, ClientLimitError and BadRequestError.
        """
        share.take(request)
        stops = [StopPattern(stop) for stop in body.stop_strings]
        answer = Answer(
            self.dispatcher, self.tokenizer, request, stops, wording, share, body.n, echoes
        )
        usage = body.stream_usage
        return await answer.respond(http_request, stream=body.stream, usage=usage)

    def close(self) -> None:
        """End the workers' threads, and the processes that render conversations."""
        self.workers.close()
        self.templates.close()
        self.tokenizer.close()


def make_calls(
    dispatcher: Dispatcher,
    tokenizer: Tokenizer,
    model: ServedModel,
    scheduler: SchedulerConfig,
    *,
    max_body_bytes: int,
    begins_traces: bool = False,
) -> Calls:
    """The parts for a running engine."""
    workers = Workers("kvscope-requests")
    limit = scheduler.max_model_len
    return Calls(
        dispatcher=dispatcher,
        tokenizer=tokenizer,
        factory=RequestFactory(model, scheduler, begins_traces=begins_traces),
        reader=BodyReader(workers, max_body_bytes),
        encoder=Encoder(tokenizer, workers, limit),
        names=TokenNames(tokenizer),
        limits=ClientLimits(scheduler.max_client_requests, scheduler.max_client_tokens),
        workers=workers,
        templates=Workers("kvscope-templates"),
        model=model.name,
        limit=limit,
    )
