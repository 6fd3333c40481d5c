"""The parts that both APIs need for a call: readers, workers, limits."""

from dataclasses import dataclass

from engine.config import SchedulerConfig
from engine.model.tokenizer import Tokenizer
from engine.server.body import BodyReader
from engine.server.clients import ClientLimits, Workers
from engine.server.dispatch import Dispatcher
from engine.server.logprobs import TokenNames
from engine.server.prompts import Encoder
from engine.server.requests import RequestFactory, ServedModel


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
