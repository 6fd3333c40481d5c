"""An engine that cannot be observed. Its stream has the reason, so that no page takes a server that
runs for one that still loads."""

import atexit
import os
from collections.abc import Callable

from kvscope_events.events import Hello
from kvscope_events.observers.ending import MAX_REASON, stopped
from kvscope_events.observers.idle import IdleThread
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.switched import SwitchReply


class DeclinedObserver(IdleThread):
    """In place of the observer and its switch, until the process ends or has another engine."""

    def __init__(self, endpoint: str, hello: Callable[[str], Hello], reason: str) -> None:
        """Publishes from now on; raises EndpointError. hello: by the session of its stream."""
        super().__init__()
        self._reason = reason[:MAX_REASON]
        self._outlet = outlet = Outlet(endpoint)
        try:
            state = stopped(hello(outlet.session), reason)
            outlet.obey(self._order)
            outlet.start(lambda: state)
            outlet.send([*state])
        except BaseException:
            outlet.stop()
            raise
        self.start()
        atexit.register(self.close)

    def tick(self) -> None:
        self._outlet.serve(lambda: True)

    def close(self) -> None:
        """Remove the socket; a forked child, which the publisher knows, leaves it alone."""
        atexit.unregister(self.close)
        self.stop()
        self._outlet.stop()

    def _order(self, on: bool) -> bytes:
        return SwitchReply(os.getpid(), "cannot be switched", self._reason).encoded()
