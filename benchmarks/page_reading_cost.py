"""Cost of reading servers' pages: `python -m benchmarks.page_reading_cost [PAGE]`.

PAGE: a page of vLLM; without one, a page is made that is as large. Measured: the library's parser
on the whole page, ours on the first page and on later ones, and a whole scrape of ours, in which
the page is fetched from a server on this machine, read and rendered again. CPU time of this
process; the server is a second one. Prints medians, the share of a core for 64 targets at a scrape
every 15 s, and one JSON line. Exit code 1: more than 3 %.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.report import environment
from exporter.clock import Clock
from exporter.readings import PageReader
from exporter.readings.mapping import PageMapper
from exporter.readings.tables import TABLES
from exporter.watched.exporter import Exporter
from tests.readings.cases.case import NOW, histogram
from tests.readings.cases.vllm import CURRENT_PAGE

REPETITIONS = 101
TARGETS = 64
INTERVAL_SECONDS = 15
MOST = 0.03

_SERVER = """
import http.server, sys
body = open(sys.argv[1], "rb").read()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def made_page() -> str:
    """As large as that of an idle vLLM with one engine: 56 kB, some 490 samples."""
    labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
    further = [
        histogram(f"vllm:request_family_{number}_tokens", labels, *range(18), total=1.5)
        for number in range(24)
    ]
    return CURRENT_PAGE + "".join(further)


def median_ms(call: Callable[[], object]) -> float:
    """CPU time of the process, its threads included."""
    spent = []
    for _ in range(REPETITIONS):
        began = time.process_time_ns()
        call()
        spent.append((time.process_time_ns() - began) / 1e6)
    return statistics.median(spent)


def main() -> int:
    page = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else made_page()
    path = Path("/tmp") / f"kvscope-page-{time.time_ns()}.txt"
    path.write_text(page)
    command = [sys.executable, "-c", _SERVER, str(path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        results = _measure(page, int(server.stdout.readline()))
    finally:
        server.terminate()
        server.wait()
        path.unlink()
    share = TARGETS / INTERVAL_SECONDS * results["scrape_ms"] / 1e3
    print(f"page: {len(page) / 1e3:.0f} kB, {_num_samples(page)} samples")
    for name, value in results.items():
        print(f"{name:>28}: {value:.2f}")
    print(f"{TARGETS} targets at {INTERVAL_SECONDS} s: {share:.2%} of a core")
    print(json.dumps({"benchmark": "page_reading_cost", **environment(), **results, "core": share}))
    return 1 if share > MOST else 0


def _measure(page: str, port: int) -> dict[str, float]:
    (table,) = TABLES["vllm"]
    mapper = PageMapper(table)
    now_ns = [10**12]

    def clock_ns() -> int:
        now_ns[0] += 10**10  # no reading is used twice
        return now_ns[0]

    reader = PageReader(f"http://127.0.0.1:{port}/metrics", "vllm", clock=Clock(clock_ns))
    exporter = Exporter([], readers=[reader], process=False)
    exporter.render()
    results = {
        "library_whole_page_ms": median_ms(lambda: list(text_string_to_metric_families(page))),
        "first_page_ms": median_ms(lambda: PageMapper(table).read(page, now=NOW)),
        "later_page_ms": median_ms(lambda: mapper.read(page, now=NOW)),
        "scrape_ms": median_ms(exporter.render),
    }
    assert sum(reader.errors.values()) == 0, reader.errors
    exporter.stop()
    return results


def _num_samples(page: str) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


if __name__ == "__main__":
    sys.exit(main())
