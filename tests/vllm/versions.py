"""`make test-vllm-versions`: the observer on several vLLMs under load, and a table of results.

    python -m tests.vllm.versions 0.20.2 0.28.0

Each vLLM gets an environment of its own, `.venv/vllm-VERSION`, made by scripts/vllm-env. Exit code
1: some step differed, or a counter that this version does not count otherwise.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.process import ROOT
from tests.vllm.counters import disagreements, total
from tests.vllm.live_replay import differences
from tests.vllm.model import HYBRID, tiny_model
from tests.vllm.observed import PROMPTS, SMALL, load, observed, reset_while_it_runs

SET_UPS = {
    "full attention": ("llama", ()),
    "hybrid with sliding windows": (HYBRID, ()),
    "no prefix caching": ("llama", ("--no-enable-prefix-caching",)),
}
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "0"}
"""0.20 does not start where threads are left unbound."""
COUNTERS = {
    "queried": "vllm:prefix_cache_queries_total",
    "hit": "vllm:prefix_cache_hits_total",
    "preempted": "vllm:num_preemptions_total",
    "prompt": "vllm:prompt_tokens_total",
    "generated": "vllm:generation_tokens_total",
}
FIRST_TO_COUNT_ADMISSIONS = (0, 27)
_COUNTED_OTHERWISE = frozenset(
    {"vllm:prefix_cache_queries", "vllm:prefix_cache_hits", "vllm:iteration_tokens_total"}
)
"""By older ones: a look-up at each attempt to schedule a request, and among an iteration's tokens
those that were found in the cache as well."""


def counted_otherwise(version: str) -> frozenset[str]:
    """Families that this vLLM counts in another way than we do."""
    older = tuple(map(int, version.split(".")[:2])) < FIRST_TO_COUNT_ADMISSIONS
    return _COUNTED_OTHERWISE if older else frozenset()


@dataclass
class Result:
    """A row of the table."""

    version: str
    set_up: str
    steps: int
    differ: list[str]
    counters: dict[str, tuple[float, float]]
    """Ours and vLLM's."""
    wrong: list[str]

    @property
    def good(self) -> bool:
        return self.steps > 100 and not self.differ and not self.wrong

    def row(self) -> str:
        cells = [self.version, self.set_up, f"{self.steps:,}", str(len(self.differ))]
        for ours, theirs in self.counters.values():
            equal = ours == theirs
            cells.append(f"{ours:,.0f}" if equal else f"{ours:,.0f}, vLLM says {theirs:,.0f}")
        return "| " + " | ".join(cells) + " |"


def install(version: str) -> Path:
    """The interpreter of this version's environment."""
    folder = ROOT / ".venv" / f"vllm-{version}"
    done = subprocess.run([ROOT / "scripts" / "vllm-env", str(folder), version])
    if done.returncode:
        sys.exit(f"vLLM {version} cannot be installed")
    return folder / "bin" / "python"


def check(version: str, set_up: str, python: Path, folder: Path) -> Result:
    """One server under load, with samples, resets and clients that go away."""
    architecture, options = SET_UPS[set_up]
    model = tiny_model(folder / "model", architecture)
    with observed(python, model, folder, *SMALL, *options, VLLM_CPU_OMP_THREADS_BIND="0") as vllm:
        load(vllm.server)
        vllm.server.complete(PROMPTS[1], 40, n=4, temperature=1.0)
        vllm.server.reset()
        for prompt in PROMPTS:
            vllm.server.complete(prompt)
        vllm.settle()
        ours, theirs = vllm.page(), vllm.server.page()
        wrong = disagreements(ours, theirs, without=counted_otherwise(version))
        reset_while_it_runs(vllm)
        vllm.settle()
        replay, lines = vllm.replay, vllm.witnessed()[0]
        differ = differences(replay, lines) + replay.contradictions
        counters = {name: (total(ours, of), total(theirs, of)) for name, of in COUNTERS.items()}
        return Result(version, set_up, replay.steps, differ, counters, wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--set-ups", nargs="+", choices=SET_UPS, default=list(SET_UPS))
    arguments = parser.parse_args()
    results = []
    for version in arguments.versions:
        python = install(version)
        for set_up in arguments.set_ups:
            with tempfile.TemporaryDirectory() as folder:
                result = check(version, set_up, python, Path(folder))
            results.append(result)
            for problem in (*result.differ[:5], *result.wrong):
                print(f"{version}, {set_up}: {problem}", file=sys.stderr)
            print(result.row(), file=sys.stderr, flush=True)
    heads = ("vLLM", "model", "steps", "differ", *COUNTERS)
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    print("\n".join(result.row() for result in results))
    sys.exit(0 if all(result.good for result in results) else 1)


if __name__ == "__main__":
    main()
