"""A server's names and an installation's settings: the ingredients of every rule."""

import json
from dataclasses import dataclass
from typing import Any

from kvscope_alerts.bare.alert import PackAlert
from kvscope_alerts.bare.limits import Settings
from kvscope_alerts.bare.server import VLLM, Server


@dataclass(frozen=True, slots=True)
class Pack:
    """The rules for one kind of server."""

    server: Server
    settings: Settings

    @property
    def job(self) -> str:
        """The matcher that every selector has: other servers use some of the names as well."""
        return f"job=~{json.dumps(self.settings.job)}"

    @property
    def subject(self) -> str:
        """An engine, in descriptions."""
        return "{{ $labels.model_name }} on {{ $labels.instance }}" + self.server.of_engine

    def series(self, name: str, *matchers: str) -> str:
        return f"{name}{{{','.join((self.job, *matchers))}}}"

    def over(self, function: str, name: str, window: str, *matchers: str) -> str:
        """A function of the range, such as `rate`."""
        return f"{function}({self.series(name, *matchers)}[{window}])"

    def alert(self, name: str, **fields: Any) -> PackAlert:
        """An alert with this server's prefix, runbook page and dashboard."""
        return PackAlert(
            name=self.server.prefix + name,
            pack=self.server.word,
            drawn=self.server is VLLM,
            board="kvscope-vllm",
            **fields,
        )
