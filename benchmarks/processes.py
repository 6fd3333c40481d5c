"""Processes beside a benchmark: peers that obey, servers with one answer, and what others take."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_ONE_ANSWER = """
import http.server, sys
body, kind = open(sys.argv[1], "rb").read(), sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def answering(body: Path, kind: str = "text/plain; version=0.0.4") -> Iterator[str]:
    """URL of a server in a process of its own that has this one answer to everything."""
    command = [sys.executable, "-c", _ONE_ANSWER, str(body), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


class Peer:
    """A process that answers JSON with JSON, a line each; other lines that it prints are dropped.

    An answer is an object whose first key is `peer`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        errors: IO[bytes] | int | None = None,
        cwd: Path | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        self.said: dict[str, Any] = {}
        """All of its last answer."""
        self.started = self.answer()

    def ask(self, order: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """The next one. Raises SystemExit where the process has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"peer"'):
                self.said = json.loads(line)
                return self.said["peer"]
        raise SystemExit("a process ended: is its interpreter one with that server?")

    def close(self) -> None:
        """Its input ends, and so does it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int, field: str = "Rss") -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)
