"""Nothing that one client sends hurts another: all attacks in a minute, on a real server."""

from pathlib import Path

import pytest

from tools.chaos.attacks import ATTACKS
from tools.chaos.limits import MORE_P99_SECONDS_BRIEFLY
from tools.chaos.run import run

SECONDS = 60.0


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_other_clients_are_served_under_every_attack(tmp_path: Path) -> None:
    lines: list[str] = []
    missed = run(
        list(ATTACKS),
        SECONDS,
        tmp_path,
        lines.append,
        more_p99_seconds=MORE_P99_SECONDS_BRIEFLY,
    )
    assert not missed, "\n".join([*missed, *lines, (tmp_path / "server.log").read_text()[-4000:]])
