"""The adviser on a running server: asked, obeyed, measured again; what `advice_check` simulates.

`python -m tools.checks.advice_live` serves the demo model in a small pool, lets `kvscope load`
send it chats, asks `kvscope advise`, serves it again as the proposal says, and sends the same
chats. It takes about five minutes, since the model really computes. `--option swap_space` carries
out that proposal instead of a larger pool's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from kvscope.diagnosis.scrape import ScrapedPage, scrape
from tools.pictures.situations import ROOT, answers, free_port, program

POOL_BLOCKS = 384
_SERVE = (
    *("serve", "--model", "demo", "--max-model-len", "1024", "--max-num-seqs", "24"),
    *("--max-num-batched-tokens", "512", "--drain-seconds", "1", "--no-gpu"),
)
_LOAD = (
    *("chat", "--concurrency", "16", "--sessions", "24", "--max-tokens", "96", "--ignore-eos"),
    *("--seed", "1"),
)


@contextmanager
def serving(folder: Path, *changes: str) -> Iterator[str]:
    """The URL of the demo model in the small pool, but for these options."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "kvscope", *_SERVE, "--port", str(port)]
    command += ["--num-gpu-blocks-override", str(POOL_BLOCKS), *changes]
    with program("server", command, folder, {}, lambda: answers(f"{url}/health")):
        yield url


def run(url: str, num_requests: int) -> ScrapedPage:
    """Send the chats; the page afterwards."""
    load = ["load", *_LOAD, "--url", url, "--num-requests", str(num_requests)]
    subprocess.run(
        [sys.executable, "-P", "-m", "kvscope", *load],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with httpx.Client() as client:
        return scrape(client, f"{url}/metrics")


def advice(url: str) -> dict[str, Any]:
    """As `kvscope advise` prints it."""
    command = [sys.executable, "-P", "-m", "kvscope", "advise", url]
    subprocess.run(command, cwd=ROOT, check=True)
    printed = subprocess.run([*command, "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    (engine,) = json.loads(printed.stdout)["engines"]
    answer: dict[str, Any] = engine["answer"]
    return answer


def hit_ratio(page: ScrapedPage) -> float:
    """Blocks found / full blocks looked up, at first admissions."""
    hits = page.value("kvscope_prefix_cache_hit_blocks_total", phase="first") or 0.0
    queried = page.value("kvscope_prefix_cache_queried_blocks_total", phase="first") or 0.0
    partial = page.value("kvscope_prefix_cache_missed_blocks_total", cause="partial") or 0.0
    return hits / (queried - partial)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=250, help="of each of the two runs")
    parser.add_argument(
        "--option",
        choices=["num_gpu_blocks_override", "swap_space"],
        default="num_gpu_blocks_override",
    )
    options = parser.parse_args()
    requests: int = options.requests
    with tempfile.TemporaryDirectory(prefix="kvscope-advice-") as name:
        folder = Path(name)
        with serving(folder) as url:
            before = run(url, requests)
            answer = advice(url)
        (proposal,) = (p for p in answer["proposals"] if p["option"] == options.option)
        value = proposal["proposed"]
        value = f"{value:.1f}" if options.option == "swap_space" else f"{value:.0f}"
        with serving(folder, *proposal["flag"].split(), value) as url:
            after = run(url, requests)
    gain, seconds = proposal["gain"], answer["seconds"]
    tokens = [
        page.value("kvscope_step_tokens_total", phase="prefill") or 0 for page in (before, after)
    ]
    again = [
        page.value("kvscope_preemption_recomputed_tokens_total") or 0 for page in (before, after)
    ]
    print(f"{'':28}{'before':>10}{'predicted':>12}{'outcome':>10}")
    rows = (
        (
            "hit ratio, %",
            100 * hit_ratio(before),
            100 * (gain["hit_ratio_to"] or hit_ratio(before)),
            100 * hit_ratio(after),
        ),
        (
            "prompt tokens saved",
            0.0,
            gain["saved_tokens_per_second"] * seconds,
            tokens[0] - tokens[1],
        ),
        (
            "recomputed tokens",
            again[0],
            (gain["recomputed_tokens_per_second_to"] or 0.0) * seconds,
            again[1],
        ),
    )
    for row in rows:
        print(f"{row[0]:28}{row[1]:>10,.1f}{row[2]:>12,.1f}{row[3]:>10,.1f}")


if __name__ == "__main__":
    main()
