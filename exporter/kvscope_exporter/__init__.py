"""Turns engines' events into metrics; it knows engines only through the contract.

| room | is |
|---|---|
| `sources/`, `scrape/` | what arrives: streams of events, and a server's own page |
| `state/` | the state of the engines: one state machine for each question |
| `machine/` | readings of the machine: GPUs and memory |
| `catalogue/` | every metric, declared once |
| `collect/` | folds, readings and samples as families of these metrics |
| `targets/` | one watched server: its engines, its state, its page |
| `otlp/`, `tracing/` | the same metrics, and a span for each request, by OTLP |
| `adviser/`, `answers/` | answers beyond metrics |
| `web/` | pages and answers over HTTP |
| `sidecar/`, `configuration/` | several servers, and the file that lists them |
| `fetch/` | documents of other servers |
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache  # read once, while files can be opened
def build_version() -> str:
    """Version of the installed distribution; `unknown` in a bare checkout."""
    try:
        return version("kvscope")
    except PackageNotFoundError:
        return "unknown"
