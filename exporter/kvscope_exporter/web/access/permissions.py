"""The five doors of a port, and what each requires.

Anything not known to be harmless is behind the strictest door.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from kvscope_events.vocabulary import CLIENT_KEY
from kvscope_exporter.faults import Faults
from kvscope_exporter.paths import Door, door_of
from kvscope_exporter.web.access.credentials import Credentials
from kvscope_exporter.web.access.origin import KnownHost, SameOrigin
from kvscope_exporter.web.refusal import Refused

Guard = Credentials | KnownHost | SameOrigin

REFUSALS = ("401", "403", "415", "503")
"""Status codes of requests that a guard refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Access configuration of a port."""

    api: Credentials | None = None
    """For everything but pages of metrics; None: open."""
    pages: Credentials | None = None
    """For pages of metrics and the answers at `/api`; None: open."""
    hosts: frozenset[str] = frozenset()
    """Names of this server, besides those of loopback, its address and the one that a client has
    connected to."""

    @property
    def guards(self) -> Mapping[Door, Guard]:
        """A door without a guard is open. Without keys, requests are for those who can reach this
        port, but not for other sites' pages in their browsers."""
        control = self.api or self.pages or SameOrigin(self.hosts)
        guards: dict[Door, Guard] = {"control": control}
        if self.api is not None:
            guards["api"] = self.api
        if self.pages is not None:
            guards["pages"] = self.pages
        else:
            guards["pages"] = guards["shell"] = KnownHost(self.hosts)
        return guards


class Access:
    """Middleware in front of an app; a refused request never reaches it."""

    def __init__(self, app: ASGIApp, config: AccessConfig) -> None:
        self._app = app
        self._guards = config.guards
        self._faults: Faults[str] = Faults("refused requests", REFUSALS, time.monotonic_ns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the lifespan of the app
            await self._app(scope, receive, send)
            return
        guard = self._guards.get(door_of(scope["method"], scope["path"]))
        if guard is not None:
            try:
                client = await guard.admit(scope)
            except Refused as refused:
                self._faults.count(str(refused.status), str(refused))
                await refused.response(scope, receive, send)
                return
            if client is not None:
                scope[CLIENT_KEY] = client
        await self._app(scope, receive, send)
