"""`python -m alerts`: the rule file and the Kubernetes files anew."""

import argparse
from pathlib import Path

from alerts.kubernetes import manifests
from alerts.rule import GRAFANA, Places
from alerts.rules import rule_file
from alerts.timing import Timing
from dashboards.runbooks import RUNBOOKS

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m alerts", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="of the checkout to write to")
    parser.add_argument("--grafana", default=GRAFANA, help="address for links to dashboards")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address for links to runbooks")
    parser.add_argument(
        "--shorten",
        type=float,
        metavar="N",
        help="print rules with all durations divided by N, for tests, and write nothing",
    )
    options = parser.parse_args(arguments)
    places = Places(runbooks=options.runbooks, grafana=options.grafana)
    if options.shorten is not None:
        print(rule_file(Timing(divisor=options.shorten), places), end="")
        return
    root: Path = options.root
    _write(root / "alerts" / "kvscope.rules.yml", rule_file(places=places))
    folder = root / "deploy" / "kubernetes"
    files = manifests(ROOT / "dashboards", places)
    for name, text in files.items():
        _write(folder / name, text)
    for path in folder.glob("*.yaml"):
        if path.name not in files:
            path.unlink()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    main()
