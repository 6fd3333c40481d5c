"""`python -m deploy.ray.bound COMMAND…`: becomes a command that ends when its parent does.

A replica of Ray that is killed cannot end its engine, which would keep ports and device memory.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent = int(os.environ["KVSCOPE_RAY_PARENT"])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        sys.exit(1)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
