"""`contents.py FOLDER`: the wheels carry what they should and nothing else."""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "kvscope": {
        *("kvscope", "kvscope_alerts", "kvscope_engine", "kvscope_events", "kvscope_exporter"),
        "kvscope_monitoring",
    },
    "kvscope_events": {"kvscope_events"},
}
SHARE = "data/share/kvscope"


def contents(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def main() -> int:
    problems = []
    for distribution, packages in PACKAGES.items():
        (wheel,) = Path(sys.argv[1]).glob(f"{distribution}-*.whl")
        names = contents(wheel)
        tops = {name.split("/")[0] for name in names}
        found = {top for top in tops if not top.endswith((".dist-info", ".data"))}
        if found != packages:
            problems.append(f"{wheel.name} has {sorted(found)}, not {sorted(packages)}")
        for package in packages:
            if f"{package}/py.typed" not in names:
                problems.append(f"{wheel.name}: {package}/py.typed is missing")
        problems += [f"{wheel.name}: {n}" for n in names if "test" in n.split("/")[-1].lower()]
    (wheel,) = Path(sys.argv[1]).glob("kvscope-*.whl")
    shared = {name.partition(f"{SHARE}/")[2] for name in contents(wheel) if f"{SHARE}/" in name}
    wanted = {file.name for file in (ROOT / "alerts").glob("*.rules.yml")}
    wanted |= {f"dashboards/{file.name}" for file in (ROOT / "dashboards").glob("*.json")}
    if shared != wanted:
        problems.append(f"rules and boards differ: {sorted(shared ^ wanted)}")
    if "kvscope_alerts/alertmanager.yml" not in contents(wheel):
        problems.append(f"{wheel.name}: kvscope_alerts/alertmanager.yml is missing")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
