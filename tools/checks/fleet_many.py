"""`kvscope fleet` over 64 sidecars: its CPU, memory, lag and page; one cut off, one restarted.

    python -m tools.checks.fleet_many [--replicas N] [--seconds N] [--rate N] [--sample N]

Simulated replicas are projected in this process, each behind a path of one HTTP server, as sidecars
project theirs: conversations placed by turns, in real time. One of them answers 503 for a minute,
another starts over with an empty pool, and the clocks of two are off by two seconds. Exit status
1 if the fleet's sums are not those of the lookups that it can know (of a sample: if the share found
is off by four standard errors), its lag exceeds five seconds, or a page takes over 50 ms in more
than one of a hundred cases.
"""

import argparse
import itertools
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec

from benchmarks.fleet_cost import RATE, SIZE, Pool
from benchmarks.shadow_cost import prompts
from exporter.answers.projection import Position, read_positions
from exporter.fold.cache.blocks import Resident
from exporter.fold.fleet.projected import VERSION, Document, Part
from exporter.fold.fleet.projection import Projection
from kvscope_events.events import Batch, BlocksCached, BlocksEvicted, PoolCreated, PrefixLookup
from tests.support.pages import sample
from tests.support.process import kvscope
from tests.support.waiting import wait_for

POOL_BLOCKS = 2000
CUT_OFF, RESTARTED = 1, 2
CUT_OFF_SECONDS = 60.0
OFF_SECONDS = {3: -2, 4: 2}
"""By how much the clocks of these are off."""
MOST_LAG_SECONDS = 5.0
MOST_PAGE_SECONDS = 0.05


class Replica:
    """A simulated engine and the projection of its stream; used by two threads."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.off_ns = OFF_SECONDS.get(number, 0) * 10**9
        self.lives = 0
        self.lock = threading.Lock()
        self.is_cut_off = False
        self.start()

    def start(self) -> None:
        """Begin a life with an empty pool."""
        with self.lock:
            self.lives += 1
            self.pool = Pool(POOL_BLOCKS)
            self.resident = Resident()
            self.projection = Projection()
            self.projection.since(None)
            created = PoolCreated(POOL_BLOCKS + 1, SIZE, 1, 1)
            self.projection.on_batch(Batch(0, 0, [created], self.now_ns()))

    def now_ns(self) -> int:
        """Its wall clock."""
        return time.time_ns() + self.off_ns

    def serve(self, path: list[bytes]) -> int:
        """One request; returns the leading blocks found."""
        with self.lock:
            events = self.pool.serve(path)
            found = 0
            for event in events:
                match event:
                    case PrefixLookup(hit_blocks=hits):
                        found = hits
                    case BlocksEvicted(hashes=names):
                        self.resident.remove(names)
                    case BlocksCached(hashes=names):
                        self.resident.add(names)
            self.projection.on_batch(Batch(0, 0, events, self.now_ns()))
            return found

    def answer(self, positions: str) -> bytes:
        """The document for a reader at these positions."""
        with self.lock:
            session = f"{self.number}-{self.lives}"
            position = read_positions(positions).get(session, Position(0, wants_names=True))
            is_new = session not in read_positions(positions)
            moments, is_gap = self.projection.since(None if is_new else position.seq)
            held = self.projection.held(self.resident) if position.wants_names or is_gap else None
            part = Part(
                server="",
                engine="0",
                model_name="model",
                session=session,
                kind="vllm",
                name_space="all",
                hash_algorithm="sha256",
                block_size=SIZE,
                bytes_per_block=1,
                num_blocks=POOL_BLOCKS,
                next_seq=self.projection.next_seq,
                is_gap=is_gap,
                moments=moments,
                held=held,
            )
        return msgspec.msgpack.encode(
            Document(version=VERSION, wall_ns=self.now_ns(), parts=[part], unknown=[])
        )


def serving(replicas: list[Replica]) -> ThreadingHTTPServer:
    """A server with a path for each replica."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            replica = replicas[int(parts.path.split("/")[1])]
            if replica.is_cut_off:
                self.send_error(503)
                return
            body = replica.answer(parse_qs(parts.query).get("after", [""])[0])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def used(pid: int) -> tuple[float, float]:
    """CPU seconds and MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return (int(fields[11]) + int(fields[12])) / 100, int(kib) / 1024


def main() -> int:
    """Compare as the arguments say; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=RATE, help="a second and replica")
    parser.add_argument("--sample", type=int, default=1)
    given = parser.parse_args()
    replicas = [Replica(number) for number in range(given.replicas)]
    server = serving(replicas)
    base = f"http://127.0.0.1:{server.server_port}"
    options = [f"--sidecar=r{number}={base}/{number}" for number in range(given.replicas)]
    options.append(f"--sample={given.sample}")
    asked = own = every = 0  # the first two: of the replicas that are always known
    pages: list[float] = []
    with kvscope("fleet", "--port", "0", *options) as process:
        fleet = process.find(r"the fleet: (\S+)")
        wait_for(lambda: _counted(fleet) == given.replicas, "all are counted", 60)
        pid = process.popen.pid
        cpu_before, _ = used(pid)
        spent_before = _spent(fleet)
        began = time.monotonic()
        most_lag, least_counted = 0.0, given.replicas
        paths = itertools.cycle([[n + bytes(4) for n in path] for path in prompts(0)])
        restarted = False
        for number in itertools.count():
            due = began + number / (given.rate * given.replicas)
            now = time.monotonic()
            if now - began > given.seconds:
                break
            time.sleep(max(0.0, due - now))
            elapsed = now - began
            replicas[CUT_OFF].is_cut_off = 20 < elapsed < 20 + CUT_OFF_SECONDS
            if elapsed > given.seconds / 2 and not restarted:
                replicas[RESTARTED].start()
                restarted = True
            replica, path = replicas[number % given.replicas], next(paths)
            found = replica.serve(path)
            every += len(path)
            if replica.number not in (CUT_OFF, RESTARTED):
                asked, own = asked + len(path), own + found
            if now - began > len(pages) + 1:
                page = httpx.get(f"{fleet}/metrics", timeout=30)
                pages.append(page.elapsed.total_seconds())
                least_counted = min(least_counted, _counted(fleet))
                most_lag = max(most_lag, _lag(page.text, given.replicas))
        seconds = time.monotonic() - began
        cpu, mib = used(pid)
        spent = _spent(fleet) - spent_before
        time.sleep(3)  # the last ones are counted
        counted_asked, counted_own = _sums(fleet, given.replicas)
        all_back = _counted(fleet) == given.replicas
        (space,) = httpx.get(f"{fleet}/api/fleet", timeout=30).json()["spaces"]
    server.shutdown()
    slow = quantiles(pages, n=100)[98]
    print(f"{number:,} requests of {given.replicas} replicas in {seconds:.0f} s")
    print(f"blocks looked up: {every / seconds:,.0f} a second")
    print(f"CPU: {(cpu - cpu_before) / seconds:.1%} of a core; folding: {spent / seconds:.1%}")
    print(f"memory: {mib:.0f} MiB")
    print(f"most lag: {most_lag:.1f} s; fewest replicas counted: {least_counted}")
    print(f"a page: {1000 * median(pages):.0f} ms, 99th percentile {1000 * slow:.0f} ms")
    print(
        f"blocks asked for: {asked:,}, counted {counted_asked:,}; found: {own:,}, {counted_own:,}"
    )
    print(f"standard error: {space['standard_error']}")
    if given.sample == 1:
        is_right = (counted_asked, counted_own) == (asked, own)
    else:
        off = counted_own / counted_asked - own / asked
        is_right = abs(off) < 4 * space["standard_error"]
    in_time = most_lag <= MOST_LAG_SECONDS and slow <= MOST_PAGE_SECONDS
    return int(not (is_right and all_back and in_time))


def _spent(fleet: str) -> float:
    page = httpx.get(f"{fleet}/metrics", timeout=30).text
    return sample(page, "kvscope_fleet_fold_seconds_total") or 0.0


def _counted(fleet: str) -> int:
    page = httpx.get(f"{fleet}/metrics", timeout=30).text
    return int(sample(page, "kvscope_fleet_replicas", state="counted") or 0)


def _lag(page: str, replicas: int) -> float:
    """The longest time since an answer, of the sidecars that are never cut off."""
    name = "kvscope_fleet_sidecar_last_answer_age_seconds"
    answered = [
        sample(page, name, sidecar=f"r{number}") for number in range(replicas) if number != CUT_OFF
    ]
    return max(age for age in answered if age is not None)


def _sums(fleet: str, replicas: int) -> tuple[int, int]:
    """Blocks asked for and found, of the replicas that are always known."""
    listed = httpx.get(f"{fleet}/api/fleet", timeout=30).json()["replicas"]
    left_out = {f"r{CUT_OFF}", f"r{RESTARTED}"}
    known = [replica for replica in listed if replica["sidecar"] not in left_out]
    return (
        sum(replica["asked_blocks"] for replica in known),
        sum(replica["own_blocks"] for replica in known),
    )


if __name__ == "__main__":
    sys.exit(main())
