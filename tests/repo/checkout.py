"""The checkout as text: which files belong to the project, and where they are."""

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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


def relative(path: Path) -> str:
    """For test ids and messages."""
    return str(path.relative_to(ROOT))
