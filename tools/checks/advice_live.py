"""The adviser on a running server: asked, obeyed, measured again; what `advice_check` simulates.

`python -m tools.checks.advice_live` serves the demo model in a small pool, lets `kvscope load`
send it chats, asks `kvscope advise`, serves it again as the proposal says, and sends the same
chats. It takes about five minutes, since the model really computes. `--option swap_space` carries
out that proposal instead of a larger pool's.

`--sglang PYTHON` does the same with an SGLang under `kvscope run`, whose interpreter is named: a
larger pool (`--option max_total_tokens`) or fewer retractions (`schedule_conservativeness`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from exporter.adviser.flags import setting
from kvscope.diagnosis.scrape import ScrapedPage, scrape
from tools.pictures.observed_vllm import ON_CPU, llama, observed_on
from tools.pictures.situations import ROOT, answers, free_port, program
from tools.pictures.two_servers import sglang_command

POOL_BLOCKS = 384
_SERVE = (
    *("serve", "--model", "demo", "--max-model-len", "1024", "--max-num-seqs", "24"),
    *("--max-num-batched-tokens", "512", "--drain-seconds", "1", "--no-gpu"),
)
_LOAD = (
    *("chat", "--concurrency", "16", "--sessions", "24", "--max-tokens", "96", "--ignore-eos"),
    *("--seed", "1"),
)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server's addresses, and what it is sent."""

    url: str
    page: str
    """Base URL of kvscope's page of it."""
    load: tuple[str, ...] = _LOAD


@contextmanager
def serving(folder: Path, sglang: Path | None, *changes: str) -> Iterator[Server]:
    """The demo model in the small pool, but for these options; in an SGLang if there is one."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if sglang is None:
        command = [sys.executable, "-P", "-m", "kvscope", *_SERVE, "--port", str(port)]
        command += ["--num-gpu-blocks-override", str(POOL_BLOCKS), *changes]
        with program("server", command, folder, {}, lambda: answers(f"{url}/health")):
            yield Server(url=url, page=url)
        return
    page = free_port()
    if not (folder / "model").exists():
        llama(folder / "model")
    command = observed_on(page) + sglang_command(sglang, folder / "model", "demo", port, *changes)
    environment = {**ON_CPU, "SGLANG_USE_CPU_ENGINE": "1"}
    with program("server", command, folder, environment, lambda: answers(f"{url}/v1/models")):
        # With ignore_eos SGLang admits only what will fit, and never retracts.
        load = (*_LOAD, "--no-ignore-eos", "--model", "demo", "--max-tokens", "192")
        yield Server(url=url, page=f"http://127.0.0.1:{page}", load=load)


def run(server: Server, num_requests: int) -> ScrapedPage:
    """Send the chats; the page afterwards."""
    load = ["load", *server.load, "--url", server.url, "--num-requests", str(num_requests)]
    subprocess.run(
        [sys.executable, "-P", "-m", "kvscope", *load],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with httpx.Client() as client:
        return scrape(client, f"{server.page}/metrics")


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
        choices=[
            *("num_gpu_blocks_override", "swap_space"),
            *("max_total_tokens", "schedule_conservativeness"),
        ],
        default="num_gpu_blocks_override",
    )
    parser.add_argument("--sglang", type=Path, help="the interpreter of an SGLang to try it on")
    options = parser.parse_args()
    requests: int = options.requests
    with tempfile.TemporaryDirectory(prefix="kvscope-advice-") as name:
        folder = Path(name)
        with serving(folder, options.sglang) as server:
            before = run(server, requests)
            answer = advice(server.page)
        (proposal,) = (p for p in answer["proposals"] if p["option"] == options.option)
        value = setting(proposal["option"], proposal["proposed"])
        with serving(folder, options.sglang, *proposal["flag"].split(), value) as server:
            after = run(server, requests)
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
    preempted = (page.value("kvscope_preemptions_total") or 0 for page in (before, after))
    print("preemptions: {:.0f} before, {:.0f} after".format(*preempted))
    for row in rows:
        print(f"{row[0]:28}{row[1]:>10,.1f}{row[2]:>12,.1f}{row[3]:>10,.1f}")


if __name__ == "__main__":
    main()
