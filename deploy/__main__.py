"""Generate deploy/kubernetes/, dashboards/kustomization.yaml, deploy/prometheus/remote-write.yml
and the Alertmanager's webhook example, from the rules, our Alertmanager and the dashboards."""

import argparse
import os
from pathlib import Path

from deploy import remote_write
from deploy.manifests import (
    DASHBOARDS,
    FOLDER,
    KUSTOMIZATION,
    MARK,
    manifests,
    of_alertmanager,
    of_dashboards,
)
from deploy.monitoring import RELEASE
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.options import add_options, chosen


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    parser.add_argument(
        "--release",
        default=RELEASE,
        help="name of the release of kube-prometheus-stack, whose Prometheus selects by it",
    )
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="SERVER=REGEX",
        help="scrape jobs of vLLM's or SGLang's own pages, as in vllm='llm-.*' "
        "(default: the server's name); repeatable",
    )
    add_options(parser)
    parser.set_defaults(grafana="")
    given = parser.parse_args(arguments)
    places, objectives, edits = chosen(parser, given)
    jobs = {server: job for server, _, job in (text.partition("=") for text in given.job)}
    if jobs.keys() - {server.word for server in SERVERS} or not all(jobs.values()):
        parser.error(f"--job: expected vllm=REGEX or sglang=REGEX, got {given.job}")
    folder: Path = given.out
    boards = os.path.relpath(DASHBOARDS, folder.resolve() / "base")
    files = manifests(boards, places, objectives, given.release, jobs, edits)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in folder.rglob("*.yaml"):
        ours = path.read_text().startswith(f"# {MARK}")
        if ours and str(path.relative_to(folder)) not in files:
            path.unlink()
    if folder == FOLDER:
        KUSTOMIZATION.write_text(of_dashboards())
        for path, text in of_alertmanager().items():
            path.write_text(text)
        remote_write.FILE.write_text(remote_write.remote_write(DASHBOARDS))


if __name__ == "__main__":
    main()
