"""A reader of a stream that comes once its observer is off."""

from kvscope_events.events import Hello, ObserverStopped
from kvscope_events.wire.subscriber import WireSubscriber
from tests.support.waiting import wait_for


def reason_heard(endpoint: str) -> str:
    """The reason, from an engine that introduces itself as ready."""
    heard = []
    reader = WireSubscriber(endpoint)

    def all_heard() -> bool:
        while (taken := reader.take()) is not None:
            heard.extend(taken.batch.events)
        return any(isinstance(event, ObserverStopped) for event in heard)

    try:
        wait_for(all_heard, f"{endpoint} has the reason")
    finally:
        reader.close()
    hello, stopped, *_ = heard
    assert isinstance(hello, Hello), heard
    assert hello.ready
    assert isinstance(stopped, ObserverStopped), heard
    return stopped.reason
