"""A stand-in for a vLLM: `python -m tests.e2e.api_server serve --port N`, until SIGTERM.

As an observed one does, it publishes into `KVSCOPE_OBSERVER_DIR`; its page is not the scheduler's.
"""

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kvscope_events.bus import EventBus
from kvscope_events.events import FirstToken, RequestFinished
from kvscope_events.wire.publisher import WirePublisher
from tests.exporter.stream import hello
from tests.scrape.cases.vllm import CURRENT_PAGE

TELLS = ["FirstToken", "RequestFinished"]


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = CURRENT_PAGE.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the log is kvscope's."""


def main() -> None:
    introduction = hello(server="vllm", model_name="m", tells=TELLS)
    bus = EventBus()
    bus.provide_snapshot(lambda: [introduction])
    folder = os.environ["KVSCOPE_OBSERVER_DIR"]
    publisher = WirePublisher(bus, f"ipc://{folder}/engine-0.sock")
    publisher.start()
    bus.emit(introduction)
    bus.emit(FirstToken(1, 5))
    bus.emit(RequestFinished(1, "abort", 1, 1, 1, 0, 5, 1))
    bus.flush()
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.sigwait([signal.SIGTERM])
    publisher.stop()


if __name__ == "__main__":
    main()
