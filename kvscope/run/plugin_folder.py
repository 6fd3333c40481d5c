"""A folder that lets a Python without kvscope load the observer: it only has to be on PYTHONPATH.

It holds a copy of the contract, and metadata with the entry points for vLLM and SGLang.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kvscope_events
from kvscope_events.wire.endpoint import EndpointError

PACKAGE = "kvscope_events"
PLUGIN = "kvscope"
"""Name of the entry points, as in VLLM_PLUGINS."""
GROUPS = {"vllm.general_plugins": "vllm", "sglang.srt.plugins": "sglang"}
"""Groups of entry points, and the observer that each loads."""
PLUGINS_VARIABLES = {"VLLM_PLUGINS": "+set", "SGLANG_PLUGINS": ":+set"}
"""The plugins that a server may load; not set: all. An empty one allows vLLM none, and SGLang all:
so it is a list if the shell expands it with this."""
_ENTRY_POINTS = "entry_points.txt"
_LEFT_OUT = ("pyproject.toml", "README.md")


def write_plugin_folder(folder: Path) -> None:
    """Create the folder, or update our files in it; raises OSError or EndpointError.

    A package of that name that we did not write is a checkout or an installation. An equal copy
    stays untouched: a server may be loading it.
    """
    if os.pathsep in str(folder):
        problem = f"PYTHONPATH would be split at the {os.pathsep!r} in it"
        raise EndpointError(str(folder), problem, f"use a folder without {os.pathsep!r}")
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / PACKAGE).exists() and not _is_ours(folder):
        raise FileExistsError(errno.EEXIST, f"its {PACKAGE} is not a copy that kvscope made")
    (source,) = kvscope_events.__path__
    facts = _facts()
    package = {Path(PACKAGE) / name: content for name, content in _files(Path(source)).items()}
    former = [path for path in (folder / PACKAGE, *_dist_infos(folder)) if path.exists()]
    present = {
        path.relative_to(folder) / name: content
        for path in former
        for name, content in _files(path, ()).items()
    }
    if present == facts | package:
        return
    for path in former:
        (path / _ENTRY_POINTS).unlink(missing_ok=True)
    for path in former:
        shutil.rmtree(path)
    # The metadata first, so that a partial copy is ours, and the entry points last: a server that
    # starts meanwhile finds all of it, or nothing.
    for name in sorted(facts | package, key=lambda path: path.name == _ENTRY_POINTS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((facts | package)[name])


def with_plugin(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """The environment in which a server loads the observer from the folder, besides other
    plugins."""
    changed = dict(environment)
    before = environment.get("PYTHONPATH")
    changed["PYTHONPATH"] = f"{folder}{os.pathsep}{before}" if before else str(folder)
    for variable, is_list in PLUGINS_VARIABLES.items():
        allowed = environment.get(variable)
        if allowed is None or (not allowed and is_list.startswith(":")):
            continue
        names = [name for name in allowed.split(",") if name]
        if PLUGIN not in names:
            names.append(PLUGIN)
        changed[variable] = ",".join(names)
    return changed


def _is_ours(folder: Path) -> bool:
    """Whether we wrote the package: installers leave a RECORD, and a checkout has no metadata."""
    facts = _dist_infos(folder)
    return bool(facts) and not any((one / "RECORD").exists() for one in facts)


def _dist_infos(folder: Path) -> list[Path]:
    return list(folder.glob(f"{PACKAGE}-*.dist-info"))


def _facts() -> dict[Path, bytes]:
    """The metadata, by paths in the folder."""
    release = _release()
    entry_points = "".join(
        f"[{group}]\n{PLUGIN} = {PACKAGE}.observers.{server}:register\n"
        for group, server in GROUPS.items()
    )
    metadata = (
        f"Metadata-Version: 2.1\nName: kvscope-events\nVersion: {release}\n"
        "Requires-Python: >=3.10\nRequires-Dist: msgspec>=0.20\n"
    )
    place = Path(f"{PACKAGE}-{release}.dist-info")
    return {
        place / "METADATA": metadata.encode(),
        place / _ENTRY_POINTS: entry_points.encode(),
    }


def _files(folder: Path, left_out: Sequence[str] = _LEFT_OUT) -> dict[Path, bytes]:
    """The contents, by paths in the folder, of all but hidden and compiled files."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder): path.read_bytes()
        for path in paths
        if path.name not in left_out
        and not any(
            part == "__pycache__" or part.startswith(".") for part in path.relative_to(folder).parts
        )
    }


def _release() -> str:
    try:
        return version("kvscope")
    except PackageNotFoundError:  # a bare checkout
        return "0"
