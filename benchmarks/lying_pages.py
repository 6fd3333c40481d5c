"""Memory of a sidecar whose servers lie: `python -m benchmarks.lying_pages [--seconds N]`.

Six servers answer with pages of 40 MB, each in another way, or just below the limit of a page with
`--mib 31`. The sidecar is not scraped, so only its recorder reads them. Prints its resident memory
every few seconds, and one JSON line.
"""

import argparse
import socket
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.processes import memory_bytes
from benchmarks.report import report
from tests.support.hostile import Answer, head, serving
from tests.support.process import kvscope

TARGET_MIB = 300
_TEXT = "Content-Type: text/plain; version=0.0.4"
_PIECE_LINES = 10_000


def _series(line: str, num_bytes: int) -> Iterator[bytes]:
    """A million series, or as many as fit."""
    sent = number = 0
    while sent < num_bytes:
        numbers = range(number, number + _PIECE_LINES)
        piece = "".join(line.format(n) for n in numbers).encode()[: num_bytes - sent]
        yield piece
        sent += len(piece)
        number += _PIECE_LINES


def _sent(line: str, num_bytes: int, *, declared: bool = True, status: str = "200 OK") -> Answer:
    def answer(connection: socket.socket) -> None:
        length = (f"Content-Length: {num_bytes}",) if declared else ()
        connection.sendall(head(_TEXT, *length, status=status))
        for piece in _series(line, num_bytes):
            connection.sendall(piece)

    return answer


def _packed(line: str, num_bytes: int) -> Answer:
    packer = zlib.compressobj(level=1, wbits=31)
    packed = b"".join(map(packer.compress, _series(line, num_bytes))) + packer.flush()
    length = f"Content-Length: {len(packed)}"
    answer = head(_TEXT, "Content-Encoding: gzip", length) + packed
    return lambda connection: connection.sendall(answer)


_UNKNOWN = 'some_other_family{{series="{}"}} 1\n'
_WANTED = 'vllm:num_requests_running{{engine="{}"}} 1\n'
_WIDE = 'vllm:num_requests_running{{engine="{}\U0001f525"}} 1\n'
LIES: dict[str, Callable[[int], Answer]] = {
    "declared": partial(_sent, _UNKNOWN),
    "endless": partial(_sent, _UNKNOWN, declared=False),
    "engines": partial(_sent, _WANTED),
    "wide": partial(_sent, _WIDE),
    "packed": partial(_packed, _UNKNOWN),
    "refused": partial(_sent, _UNKNOWN, declared=False, status="503 No"),
}
"""By name: makes an answer of this many bytes."""


@contextmanager
def lied_to(num_bytes: int) -> Iterator[int]:
    """The process number of a sidecar with a target for each lie."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(serving({"/metrics": lie(num_bytes)}))
            for name, lie in LIES.items()
        }
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "kvscope.yaml"
        lines = [f"- {{name: {name}, url: '{server.url}'}}" for name, server in servers.items()]
        file.write_text("servers:\n" + "\n".join(lines))
        process = stack.enter_context(
            kvscope("sidecar", "--config", str(file), "--port", "0", "--no-gpu")
        )
        process.find(r"(http://[\d.]+:\d+)")
        yield process.popen.pid
        if not all(server.num_asked for server in servers.values()):
            raise RuntimeError("a server was not asked for its page")


def highest_resident_mib(seconds: float, num_bytes: int, show: Callable[[str], None]) -> float:
    highest = 0.0
    with lied_to(num_bytes) as pid:
        began, shown = time.monotonic(), 0.0
        while (elapsed := time.monotonic() - began) < seconds:
            resident = memory_bytes(pid) / 2**20
            highest = max(highest, resident)
            if elapsed >= shown:
                show(f"{elapsed:.0f} s: {resident:.0f} MiB, at most {highest:.0f}")
                shown += 10
            time.sleep(0.1)
    return highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--mib", type=float, default=40.0)
    options = parser.parse_args()
    highest = highest_resident_mib(
        options.seconds, int(options.mib * 2**20), lambda line: print(line, flush=True)
    )
    rows: dict[str, object] = {f"resident at most, pages of {options.mib:g} MiB": highest}
    report("lying_pages", rows, target=TARGET_MIB)


if __name__ == "__main__":
    main()
