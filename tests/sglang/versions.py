"""`make test-sglang-versions`: the observer in several SGLangs' schedulers, and a table of results.

    python -m tests.sglang.versions 0.5.17 0.5.19

Each SGLang gets an environment of its own, `.venv/sglang-VERSION`, made by scripts/sglang-env and
removed after its run. Exit code 1: some step differed, or some sum.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvscope.run.plugin_folder import write_plugin_folder
from tests.sglang.driven import Driven, driver_environment, wrong_sums
from tests.sglang.scenarios import SCENARIOS
from tests.sglang.server import PAGE
from tests.support.process import ROOT
from tests.vllm.model import tiny_model

HEADS = (
    *("SGLang", "tree", "settings", "steps", "differ", "steps with names", "differ"),
    *("tokens evicted", "retractions", "aborted", "sums that differ", "not observed"),
)


@dataclass
class Result:
    """A row of the table: the sums of a release's scenarios."""

    version: str
    trees: set[str] = field(default_factory=set)
    scenarios: int = 0
    sums: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    """Settings by the reason why they are not observed."""

    def add(self, run: dict[str, Any]) -> None:
        name, found = run["scenario"], run["found"]
        if not run["live"]:
            said = " ".join(run["said"]) or "no reason"
            reason = said.removeprefix("kvscope: off: ").partition(";")[0]
            if found:  # it had begun
                self.wrong.append(f"{name}: {reason}")
            else:
                self.refused.setdefault(reason, []).append(name)
            return
        self.trees.add(run["tree"])
        self.scenarios += 1
        for what in ("steps", "named_steps", "evicted_tokens", "preemptions"):
            self.sums[what] = self.sums.get(what, 0) + found.get(what, 0)
        for what in ("differing_counts", "differing_names"):
            self.sums[what] = self.sums.get(what, 0) + found.get(what, 0)
        self.sums["aborted"] = self.sums.get("aborted", 0) + run["replies"].get("aborted", 0)
        known = ("prefill:", "computed:") if in_pages(run) else ()
        wrong = [text for text in wrong_sums(run) if not text.startswith(known)]
        self.wrong += [f"{name}: {text}" for text in (*run["examples"], *wrong)]

    @property
    def good(self) -> bool:
        return self.sums.get("steps", 0) > 1000 and not self.wrong

    def row(self) -> str:
        of = self.sums
        refused = [f"{', '.join(names)}: {reason}" for reason, names in self.refused.items()]
        cells = [
            *(self.version, ", ".join(sorted(self.trees)), str(self.scenarios)),
            *(f"{of['steps']:,}", str(of["differing_counts"])),
            *(f"{of['named_steps']:,}", str(of["differing_names"])),
            *(f"{of['evicted_tokens']:,}", f"{of['preemptions']:,}", f"{of['aborted']:,}"),
            *("; ".join(self.wrong) or "none", "; ".join(refused) or "none"),
        ]
        return "| " + " | ".join(cells) + " |"


def in_pages(run: dict[str, Any]) -> bool:
    """Whether SGLang's sum of prefill tokens has the last page of each prompt in full, as in older
    releases: `ceil_paged_tokens` in `PrefillAdder._update_prefill_budget`."""
    if "--page-size" not in SCENARIOS[run["scenario"]].arguments:
        return False
    theirs = int(run["metrics"]["realtime_tokens_total:prefill_compute"])
    return theirs % PAGE == 0 and theirs > run["found"]["prefill_tokens"]


def install(version: str) -> Path:
    """The folder of this version's environment."""
    folder = ROOT / ".venv" / f"sglang-{version}"
    if subprocess.run([ROOT / "scripts" / "sglang-env", str(folder), version]).returncode:
        sys.exit(f"SGLang {version} cannot be installed")
    return folder


def check(version: str, environment: Path, scenarios: list[str]) -> Result:
    """Drive its scheduler through each of them."""
    result = Result(version)
    with tempfile.TemporaryDirectory(prefix="kvscope-") as name:
        folder = Path(name)
        (folder / "plugin").mkdir()
        write_plugin_folder(folder / "plugin")
        model = tiny_model(folder / "llama", "llama")
        python = environment / "bin" / "python"
        driven = Driven(python, model, driver_environment(folder / "plugin"))
        for scenario in scenarios:
            result.add(driven[scenario])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--keep", action="store_true", help="leave the environments there")
    arguments = parser.parse_args()
    results = []
    for version in arguments.versions:
        folder = install(version)
        try:
            results.append(check(version, folder, arguments.scenarios))
        finally:
            if not arguments.keep:
                shutil.rmtree(folder)
        print(results[-1].row(), file=sys.stderr, flush=True)
    print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
    print("\n".join(result.row() for result in results))
    sys.exit(0 if all(result.good for result in results) else 1)


if __name__ == "__main__":
    main()
