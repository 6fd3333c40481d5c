"""A network of its own for this thread, and for what it starts: loopback, and nothing else.

A replica of Ray Serve listens on every address and unpickles what it receives there.
"""

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl

import pytest

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


@contextmanager
def own_network() -> Iterator[None]:
    """Skips the test where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            pytest.skip(f"no network of its own, which Ray needs here: {reason}")
        try:
            with socket.socket() as any_socket:
                request = b"lo".ljust(16, b"\0") + _IFF_UP.to_bytes(2, "little") + bytes(14)
                ioctl(any_socket, _SIOCSIFFLAGS, request)
            yield
        finally:
            assert not libc.setns(before, _CLONE_NEWNET), os.strerror(ctypes.get_errno())
    finally:
        os.close(before)
