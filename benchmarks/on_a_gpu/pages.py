"""Pages of metrics, kept with the moment of each: what boards are drawn from on another machine.

A file has one JSON object a line, {"time", "job", "seconds", "page"}, compressed with gzip. `time`
is in seconds since the epoch, `seconds` what the answer took.
"""

import gzip
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

EVERY_SECONDS = 1.0
INSTANCES = {"kvscope": "gpu-host:8010", "vllm": "gpu-host:8000"}
"""By job: the ports of the run were free ones."""


class Page(NamedTuple):
    """One answer."""

    time: float
    job: str
    seconds: float
    page: str


@contextmanager
def kept(path: Path, urls: Mapping[str, str]) -> Iterator[None]:
    """Until the block ends. urls: by the name of the job that a Prometheus would have."""
    ended = threading.Event()

    def keep() -> None:
        with gzip.open(path, "wt") as file, httpx.Client(timeout=10) as client:
            while not ended.is_set():
                due = time.monotonic() + EVERY_SECONDS
                for job, url in urls.items():
                    page = _fetched(client, job, url)
                    if page is not None:
                        file.write(json.dumps(page._asdict()) + "\n")
                file.flush()
                ended.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=keep, name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def read(path: Path) -> Iterator[Page]:
    """All that is whole in a file, whose writer may have been killed."""
    with gzip.open(path, "rt") as file:
        try:
            for line in file:
                yield Page(**json.loads(line))
        except (EOFError, json.JSONDecodeError):
            return


def with_moments(pages: Iterable[Page]) -> Iterator[str]:
    """Lines in OpenMetrics' format: each sample with its job, its instance and its moment."""
    for page in pages:
        labels = f'job="{page.job}",instance="{INSTANCES[page.job]}"'
        yield f"up{{{labels}}} 1 {page.time:.3f}"
        yield f"scrape_duration_seconds{{{labels}}} {page.seconds:.6f} {page.time:.3f}"
        for line in page.page.splitlines():
            if line and not line.startswith("#"):
                sample = line.partition(" # ")[0]  # without an exemplar
                series, _, value = sample.rpartition(" ")
                yield f"{_labelled(series, labels)} {value} {page.time:.3f}"
    yield "# EOF"


def _labelled(series: str, labels: str) -> str:
    """A sample's name and labels with these before its own."""
    name, brace, own = series.partition("{")
    return f"{name}{{{labels},{own}" if brace and own != "}" else f"{name}{{{labels}}}"


def _fetched(client: httpx.Client, job: str, url: str) -> Page | None:
    """None: no answer, as a Prometheus would have a gap there."""
    began, clock = time.time(), time.perf_counter()
    try:
        answer = client.get(url)
    except httpx.HTTPError:
        return None
    return Page(began, job, time.perf_counter() - clock, answer.text) if answer.is_success else None
