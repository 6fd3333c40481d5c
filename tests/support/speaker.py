"""`python -m tests.support.speaker ENDPOINT WHO`: a process on the wire, as an engine or a worker.

WHO: worker, loading or ready. SIGUSR1 makes a loading engine ready; SIGTERM ends it in an orderly
way, with its socket.
"""

import signal
import sys

from kvscope_events.bus import EventBus
from kvscope_events.events import Hello
from kvscope_events.producers import VLLM_EVENTS, VLLM_WORKER_EVENTS
from kvscope_events.wire.publisher import WirePublisher
from tests.events.producers import SNAPSHOT
from tests.exporter.stream import hello

ENDING, READY = signal.SIGTERM, signal.SIGUSR1


def main(endpoint: str, who: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {ENDING, READY})
    is_worker = who == "worker"
    is_ready = who == "ready"

    def introduction() -> Hello:
        return hello(
            server="vllm",
            model_name="llama",
            ready=is_ready,
            worker="0" if is_worker else None,
            tells=sorted(VLLM_WORKER_EVENTS if is_worker else VLLM_EVENTS),
        )

    bus = EventBus()
    bus.provide_snapshot(lambda: [introduction(), SNAPSHOT])
    publisher = WirePublisher(bus, endpoint)
    publisher.start()
    while True:
        bus.emit(introduction())
        bus.flush()
        print("speaking", flush=True)
        if signal.sigwait({ENDING, READY}) == ENDING:
            break
        is_ready = True
    publisher.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
