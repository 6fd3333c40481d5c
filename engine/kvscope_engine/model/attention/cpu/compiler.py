"""Compiles a C file of ours into a Python-callable function, with the machine's own compiler.

It takes a third of a second, so nothing is kept between processes: there is no cache that could be
stale, made for another CPU or written by another user.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_COMPILER = "cc"
_OPTIONS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp")
_TIMEOUT_SECONDS = 20


class CompileError(Exception):
    """This machine cannot compile or load the kernel; the message is one line."""


def find_compiler() -> str:
    """The compiler's path. Raises CompileError."""
    compiler = shutil.which(_COMPILER)
    if compiler is None:
        raise CompileError(f"there is no C compiler ({_COMPILER})")
    return compiler


def load_function(source: Path, name: str, constants: Mapping[str, int]) -> Any:
    """The function `name` of a C file. constants: preprocessor definitions.

    Not linked with any library: its dependencies, above all OpenMP, are found in this process, so
    it shares torch's threads. Raises CompileError.
    """
    compiler = find_compiler()
    defines = [f"-D{name}={value}" for name, value in constants.items()]
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:
        compiled, library = Path(folder, "kernel.o"), Path(folder, "kernel.so")
        _run([compiler, *_OPTIONS, *defines, "-c", str(source), "-o", str(compiled)])
        _run([compiler, "-shared", "-nostdlib", str(compiled), "-o", str(library)])
        try:
            return getattr(ctypes.CDLL(str(library)), name)
        except OSError as error:
            raise CompileError(f"the compiled kernel does not load ({error})") from error
        except AttributeError as error:
            raise CompileError(f"the compiled kernel has no {name}") from error


def _run(command: list[str]) -> None:
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        first = next(iter(error.stderr.splitlines()), "no message")
        raise CompileError(f"the C compiler failed ({first})") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"the C compiler did not run ({error})") from error
