"""The checkout as text: which files belong to the project, and where they are."""

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_WITH_A_PACKAGE = ("alerts", "engine", "exporter", "monitoring")
"""Folders around a package `kvscope_…`, which is what Python imports."""


@functools.cache
def project_files() -> tuple[Path, ...]:
    """Files that are tracked or would be: everything git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = {ROOT / name for name in listed.decode().split("\0") if name}
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*folders: str) -> tuple[Path, ...]:
    """Python files of the project under these folders, given relative to its root."""
    roots = [ROOT / folder for folder in folders]
    return tuple(
        path
        for path in project_files()
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    )


def module_of(path: Path) -> tuple[str, ...]:
    """The parts of its name for `import`; a package is named as its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in _WITH_A_PACKAGE else parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def folder_of(package: str) -> Path:
    """The folder of a package of ours."""
    folder = package.removeprefix("kvscope_")
    return ROOT / folder / package if folder in _WITH_A_PACKAGE else ROOT / package


def modules_of(*packages: str) -> tuple[Path, ...]:
    """The Python files of these packages."""
    files = (path for path in project_files() if path.suffix == ".py")
    return tuple(path for path in files if module_of(path)[0] in packages)


def relative(path: Path) -> str:
    """For test ids and messages."""
    return str(path.relative_to(ROOT))
