"""Build hook of the wheel: rules and boards, which Prometheus and Grafana load, go under share/.

A pattern instead of a list in pyproject.toml, so that a new board needs no line there.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = {"alerts/*.rules.yml": "share/kvscope", "dashboards/*.json": "share/kvscope/dashboards"}


class SharedFiles(BuildHookInterface):
    """Adds the files of SHARED; a pattern without files ends the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        for pattern, folder in SHARED.items():
            files = sorted(Path(self.root).glob(pattern))
            if not files:
                raise FileNotFoundError(f"{pattern}: nothing to ship; run `make alerts dashboards`")
            for file in files:
                build_data["shared_data"][str(file)] = f"{folder}/{file.name}"
