"""Generate deploy/kubernetes/ from the alert rules and the dashboards' JSON."""

import argparse
from pathlib import Path

from alerts.options import add_options, chosen
from dashboards.generate import FOLDER as DASHBOARDS
from deploy.manifests import FOLDER, manifests


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    add_options(parser)
    given = parser.parse_args(arguments)
    places, objectives = chosen(parser, given)
    folder: Path = given.out
    folder.mkdir(parents=True, exist_ok=True)
    files = manifests(DASHBOARDS, places, objectives)
    for name, text in files.items():
        (folder / name).write_text(text)
    for path in folder.glob("*.yaml"):
        if path.name not in files:
            path.unlink()


if __name__ == "__main__":
    main()
