"""Reads captured pages of real servers and compares with what their `expected.json` counted.

    python -m tools.checks.check_pages FOLDER

FOLDER has a folder for each capture: vllm-*, sglang-*, ray-*, dynamo-*, and llamacpp, as far as
they are there. Prints a line for each page. Exit code 1: some number differs, something
on a page could not be used, or a page is taken for another server's.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.scrape import TABLES, detect
from kvscope_exporter.scrape.mapping import PageMapper
from tests.scrape.cases.case import NOW, Expected, flat

Numbers = Mapping[str, float]
"""By series, as cases of tests/scrape name them."""

_VLLM = {
    "num_requests_running": "kvscope_sequences:running",
    "num_requests_waiting": "kvscope_sequences:waiting",
    "kv_cache_usage_perc": "kvscope_kv_active_ratio",
    "prefix_cache_queries_total": "kvscope_prefix_cache_queried_tokens_total:first",
    "prefix_cache_hits_total": "kvscope_prefix_cache_hit_tokens_total:first",
    "external_prefix_cache_queries_total": "kvscope_kv_tier_queried_tokens_total:other",
    "num_preemptions_total": "kvscope_preemptions_total:recompute",
    "generation_tokens_total": "kvscope_generated_tokens_total",
    'request_success_total{finished_reason="length"}': "kvscope_requests_finished_total:length",
}
_SGLANG = {
    "generation_tokens_total": "kvscope_generated_tokens_total",
    "num_requests_total": "kvscope_requests_finished_total",
    "num_retracted_requests_total": "kvscope_preemptions_total:recompute",
    "max_total_num_tokens": "kvscope_kv_usable_tokens",
    "page_size": "kvscope_kv_block_size_tokens",
    "num_pages": "kvscope_kv_capacity_blocks",
    "num_running_reqs": "kvscope_sequences:running",
    "num_queue_reqs": "kvscope_sequences:waiting",
    "full_token_usage": "kvscope_kv_active_ratio",
}
_LLAMA_CPP = {
    "tokens_predicted_total": "kvscope_generated_tokens_total",
    "requests_processing": "kvscope_requests:running",
    "requests_deferred": "kvscope_requests:waiting",
    "prompt_tokens_cached_total": "kvscope_prefix_cache_hit_tokens_total:first",
}
_FRONTEND = {
    "cached_tokens_sum": "kvscope_prefix_cache_hit_tokens_total:first",
    "model_kv_cache_block_size": "kvscope_kv_block_size_tokens",
    "output_tokens_total": "kvscope_generated_tokens_total",
}


class Check(NamedTuple):
    kind: ServerKind
    page: Path
    expected: Mapping[str, Numbers]
    """By engine."""
    may_contradict: bool = False
    """The capture has been cut, so that some of its histograms lack their buckets."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    checks = list(checks_in(parser.parse_args().folder))
    failures = [line for check in checks for line in failures_of(check)]
    print(f"{len(checks)} pages, {len(failures)} failures")
    return 1 if failures or not checks else 0


def checks_in(folder: Path) -> Iterator[Check]:
    """Checks of all present captures."""
    for name, checks in _CAPTURES.items():
        for capture in sorted(folder.glob(name)):
            path = capture / "expected.json"
            yield from checks(capture, json.loads(path.read_text()) if path.exists() else {})


def failures_of(check: Check) -> list[str]:
    """Differences; prints a line for the page."""
    text = check.page.read_text()
    pages = [PageMapper(table).read(text, now=NOW) for table in TABLES[check.kind]]
    found = flat(pages)
    failures = [f"taken for {kind}" for kind in (detect(text),) if kind != check.kind]
    if any(page.num_malformed for page in pages):
        failures.append("has lines that cannot be used")
    if any(page.num_contradictory for page in pages) and not check.may_contradict:
        failures.append("contradicts itself")
    compared = 0
    for engine, numbers in check.expected.items():
        series = _of_engine(found, engine)
        for name, number in numbers.items():
            value = series.get(name)
            if isinstance(value, tuple):
                value = value[-2]  # how many a histogram observed
            compared += 1
            if value is None or abs(value - number) > 1e-9 * max(1, abs(number)):
                failures.append(f"engine {engine!r} {name}: {value}, expected {number}")
    total = sum(len(series) for series in found.values())
    where = f"{check.page.parent.name}/{check.page.name}"
    print(f"{where}: {len(found)} engines, {total} series, {compared} of them compared")
    for failure in failures:
        print(f"    {failure}")
    return [f"{where}: {failure}" for failure in failures]


def _of_engine(found: Expected, engine: str) -> dict[str, Any]:
    return {k: v for (_, e), series in found.items() if e == engine for k, v in series.items()}


def _vllm(capture: Path, expected: dict[str, Any]) -> Iterator[Check]:
    server = expected["server"]
    usable = server.get("usable_blocks") or server["usable_blocks_per_rank"]
    for phase, metrics in expected["metrics"].items():
        ranks = range(server.get("data_parallel_size", 1))
        numbers: dict[str, dict[str, float]] = {}
        for rank in ranks:
            own = {
                name: value[str(rank)] if isinstance(value, dict) else value
                for name, value in metrics.items()
            }
            numbers[str(rank)] = _renamed(own, "vllm:", _VLLM) | {
                "kvscope_kv_capacity_blocks": usable + 1,
                "kvscope_kv_usable_blocks": usable,
                "kvscope_kv_block_size_tokens": server["block_size"],
                "kvscope_kv_usable_tokens": usable * server["block_size"],
                "kvscope_kv_blocks:active": round(own["vllm:kv_cache_usage_perc"] * usable),
            }
        for page in sorted(capture.glob(f"metrics-{phase}*.txt")):
            yield Check("vllm", page, numbers)


def _sglang(capture: Path, expected: dict[str, Any]) -> Iterator[Check]:
    for version, run in expected.items():
        suffix = "" if version == "0.5.23" else f".{version}"
        for phase, metrics in run["metrics"].items():
            named = {name.removeprefix("sglang:"): value for name, value in metrics.items()}
            numbers = _renamed(named, "", _SGLANG)
            size = named["page_size"]
            for state, name in (("active", "used"), ("cached", "evictable"), ("free", "available")):
                if f"kv_{name}_tokens" in named:
                    numbers[f"kvscope_kv_blocks:{state}"] = named[f"kv_{name}_tokens"] / size
            if "evicted_tokens_total" in named:
                evicted = named["evicted_tokens_total"] / size
                numbers["kvscope_kv_block_evictions_total:capacity"] = evicted
            if (modes := named.get("prefill_effective_tokens_total")) is not None:
                queried, hit = sum(modes.values()), modes["device_hit"]
            else:
                queried, hit = named["prompt_tokens_total"], named["cached_tokens_total"]
            numbers["kvscope_prefix_cache_queried_tokens_total:first"] = queried
            numbers["kvscope_prefix_cache_hit_tokens_total:first"] = hit
            if "num_retracted_input_tokens_total" in named:
                lengths = ("num_retracted_input_tokens_total", "num_retracted_output_tokens_total")
                discarded = sum(named[name] for name in lengths)
                numbers["kvscope_preemption_discarded_tokens_total:recompute"] = discarded
                numbers["kvscope_preemption_recomputed_tokens_total:recompute"] = discarded
            yield Check("sglang", capture / f"metrics-{phase}{suffix}.txt", {"0": numbers})
        if version == "0.5.23":
            events = run["events"]
            evictions = {
                "kvscope_kv_block_evictions_total:capacity": events["removed_hashes"]["GPU"]
            }
            resident = {"kvscope_kv_blocks:cached": events["end"]["resident_blocks"]}
            yield Check("sglang", capture / "metrics-end.txt", {"0": evictions | resident})


def _ray(capture: Path, expected: dict[str, Any]) -> Iterator[Check]:
    for phase, metrics in expected["metrics_by_replica"].items():
        numbers: dict[str, dict[str, float]] = {}
        for name, by_replica in metrics.items():
            for replica, value in by_replica.items():
                own = _renamed({name: value}, "ray_vllm_", _VLLM)
                numbers.setdefault(replica, {}).update(own)
        if phase == "up":
            for replica in numbers:
                numbers[replica]["kvscope_kv_block_size_tokens"] = expected["server"]["block_size"]
        yield Check("ray", capture / f"metrics-{phase}.txt", numbers, may_contradict=True)


def _dynamo(capture: Path, expected: dict[str, Any]) -> Iterator[Check]:
    for phase, metrics in expected["worker_metrics"].items():
        numbers: dict[str, dict[str, float]] = {}
        for name, by_rank in metrics.items():
            for rank, value in by_rank.items():
                numbers.setdefault(rank, {}).update(_renamed({name: value}, "vllm:", _VLLM))
        yield Check("dynamo", capture / f"worker-{phase}.txt", numbers)
    for phase, metrics in expected["frontend_metrics"].items():
        own = _renamed(metrics, "dynamo_frontend_", _FRONTEND)
        yield Check("dynamo", capture / f"frontend-{phase}.txt", {"": own})


def _llama_cpp(capture: Path, expected: dict[str, Any]) -> Iterator[Check]:
    for phase, metrics in expected["metrics"].items():
        queried = sum(metrics[f"llamacpp:prompt_tokens{kind}_total"] for kind in ("", "_cached"))
        numbers = _renamed(metrics, "llamacpp:", _LLAMA_CPP)
        numbers["kvscope_prefix_cache_queried_tokens_total:first"] = queried
        yield Check("llama.cpp", capture / f"metrics-{phase}.txt", {"0": numbers})


def _renamed(theirs: Numbers, prefix: str, names: Mapping[str, str]) -> dict[str, float]:
    return {
        names[name.removeprefix(prefix)]: value
        for name, value in theirs.items()
        if name.removeprefix(prefix) in names
    }


_CAPTURES: dict[str, Callable[[Path, dict[str, Any]], Iterator[Check]]] = {
    "vllm-*": _vllm,
    "sglang-*": _sglang,
    "ray-*": _ray,
    "dynamo-*": _dynamo,
    "llamacpp": _llama_cpp,
}


if __name__ == "__main__":
    sys.exit(main())
