"""Errors of standard output: a reader that has gone ends a command silently, a full disk ends it
with one line. Never a traceback, not even when Python flushes at its very end."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from kvscope.output import fail

EXIT_NO_READER = 1
"""Exit status of typer and rich when the reader, such as `head`, has gone."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def output_errors() -> Iterator[None]:
    """Wraps a whole command. Raises SystemExit."""
    if sys.stdout is None:  # closed by our parent process; stays open until Python ends
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        # An error with a file's name is not one of standard output.
        if error.filename is not None or error.errno not in (errno.EPIPE, *_FULL):
            raise
        _discard_what_is_left()
        if error.errno == errno.EPIPE:
            raise SystemExit(EXIT_NO_READER) from None
        code = fail(f"standard output: {error.strerror}").exit_code
        raise SystemExit(code) from None


def _discard_what_is_left() -> None:
    """Discard what is still buffered, or Python would fail on it again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
