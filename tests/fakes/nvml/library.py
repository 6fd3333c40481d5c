"""Compiles nvml.c with the system's C compiler."""

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "nvml.c"
SONAME = "libnvidia-ml.so.1"
FLAGS = ("-O1", "-Wall", "-Wextra", "-std=gnu11", "-shared", "-fPIC")


def compiler() -> str | None:
    """The C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build_library(folder: Path, *, old_driver: bool = False) -> Path:
    """The library in `folder`, under the name that pynvml opens.

    It has no DT_SONAME: glibc would answer any later dlopen of that name with it, torch's included.
    """
    cc = compiler()
    assert cc is not None
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / SONAME
    define = ["-DOLD_DRIVER"] if old_driver else []
    subprocess.run(
        [cc, *FLAGS, "-fvisibility=hidden", *define, "-o", str(target), str(SOURCE)], check=True
    )
    return target
