"""A file with which one thread ends the wait of another; its number is never used once closed."""

import os
import threading

from kvscope_events.wire.endpoint import EndpointError


class Wake:
    """`file` becomes readable by `rouse` and is cleared by `clear`; raises EndpointError."""

    def __init__(self, endpoint: str) -> None:
        """endpoint: what the wait is for, named in the error."""
        self._closing = threading.Lock()
        try:
            self.file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # -1 once it is closed
        except OSError as error:
            remedy = "raise the limit of open files (ulimit -n)"
            raise EndpointError(endpoint, f"cannot be read: {error.strerror}", remedy) from None

    def rouse(self) -> None:
        """End a wait, now or the next one; any thread may call it, also after `close`."""
        with self._closing:  # the number of a closed file is soon reused
            if self.file >= 0:
                os.eventfd_write(self.file, 1)

    def clear(self) -> None:
        """For the thread that waits, once the file is readable."""
        os.eventfd_read(self.file)

    def close(self) -> None:
        """May be repeated."""
        with self._closing:
            if self.file >= 0:
                os.close(self.file)
                self.file = -1
