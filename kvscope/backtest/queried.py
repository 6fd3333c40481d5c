"""Samples from a Prometheus, by range queries of a day each."""

import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from urllib.parse import urlencode

import httpx
import msgspec

from kvscope.backtest import BacktestError
from kvscope.backtest.samples import Samples
from kvscope_exporter.fetch.error import JSON_ERRORS, FetchError
from kvscope_exporter.fetch.fetch import Fetcher
from kvscope_exporter.scrape import Tls

STEP_SECONDS = 60
_DAY_SECONDS = 86400
_OF_UP = 'job="kvscope"'
"""The rules ask for it; `up` has no labels of a page."""
_MAX_BYTES = 256 << 20


class Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class Data(msgspec.Struct, frozen=True):
    result: list[Series]


class Answer(msgspec.Struct, frozen=True):
    data: Data


def queried(
    url: str,
    names: Set[str],
    *,
    days: float,
    only: Mapping[str, str],
    headers: Mapping[str, str],
    ca: Path | None,
    seconds: float,
    say: Callable[[str], None],
) -> Samples:
    """The last days. only: labels that series must have. Raises BacktestError."""
    count = round(days * _DAY_SECONDS / STEP_SECONDS) + 1
    ends = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    samples = Samples(
        source=url, begins=ends - (count - 1) * STEP_SECONDS, step=STEP_SECONDS, count=count
    )
    client = client_of(url, ca, seconds)
    matchers = ",".join(f"{name}={_quoted(value)}" for name, value in only.items())
    with client:
        for number, name in enumerate(sorted(names)):
            say(f"{number / len(names):4.0%} {name}")
            query = f"{name}{{{_OF_UP if name == 'up' else matchers}}}"
            for begin in range(samples.begins, ends + 1, _DAY_SECONDS):
                end = min(ends, begin + _DAY_SECONDS - STEP_SECONDS)
                asked: dict[str, str | int] = {
                    "query": query,
                    "start": begin,
                    "end": end,
                    "step": STEP_SECONDS,
                }
                _put(samples, name, ask(client, url, asked, headers, seconds))
    if not samples.names - {"up"}:
        where = f" with {matchers}" if matchers else ""
        raise BacktestError(f"{url}: no series of kvscope{where} in that time")
    return samples


def client_of(url: str, ca: Path | None, seconds: float) -> httpx.Client:
    """Raises BacktestError."""
    try:
        return Tls(ca=None if ca is None else str(ca)).client(url, seconds)
    except (OSError, ValueError, httpx.InvalidURL) as error:
        raise BacktestError(f"{url}: {error}; expected http://HOST:PORT") from None


def _put(samples: Samples, name: str, answer: Answer) -> None:
    for series in answer.data.result:
        labels = {label: text for label, text in series.metric.items() if label != "__name__"}
        for moment, value in series.values:
            samples.put(name, labels, round(moment - samples.begins) // samples.step, float(value))


def ask(
    client: httpx.Client,
    url: str,
    asked: Mapping[str, str | int],
    headers: Mapping[str, str],
    seconds: float,
) -> Answer:
    place = f"{url.rstrip('/')}/api/v1/query_range"
    fetcher = Fetcher(
        client,
        f"{place}?{urlencode(asked)}",
        headers={"Accept": "application/json", "User-Agent": "kvscope", **headers},
        max_bytes=_MAX_BYTES,
        refusal_bytes=512,
    )
    try:
        return msgspec.json.decode(fetcher.fetch(seconds).body, type=Answer)
    except FetchError as error:
        said = " ".join(error.body.decode(errors="replace").split())
        raise BacktestError(f"{place}: {error}{f': {said}' if said else ''}") from None
    except (*JSON_ERRORS, ValueError) as error:
        raise BacktestError(f"{place}: not an answer of a Prometheus: {error}"[:300]) from None


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
