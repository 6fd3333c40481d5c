"""Generate deploy/kubernetes/ from the alert rules and the dashboards' JSON."""

import argparse
from pathlib import Path

from alerts.options import add_options, chosen
from dashboards.generate import FOLDER as DASHBOARDS
from deploy.manifests import FOLDER, MARK, manifests
from deploy.monitoring import RELEASE


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    parser.add_argument(
        "--release",
        default=RELEASE,
        help="name of the release of kube-prometheus-stack, whose Prometheus selects by it",
    )
    add_options(parser)
    parser.set_defaults(grafana="")
    given = parser.parse_args(arguments)
    places, objectives = chosen(parser, given)
    folder: Path = given.out
    files = manifests(DASHBOARDS, places, objectives, given.release)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in folder.rglob("*.yaml"):
        ours = path.read_text().startswith(f"# {MARK}")
        if ours and str(path.relative_to(folder)) not in files:
            path.unlink()


if __name__ == "__main__":
    main()
