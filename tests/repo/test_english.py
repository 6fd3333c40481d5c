"""Plain English: none of the house's tics in what users read, fewer each time elsewhere."""

import os
import tomllib
from collections import Counter
from pathlib import Path

from tests.repo.english import found, passages

COUNTS = Path(__file__).parent / "english_counts.toml"
HEADER = """\
# Tics in docstrings and comments, by package (tests/repo/english.py has the patterns). A count may
# only fall: KVSCOPE_UPDATE_ENGLISH=1 pytest tests/repo/test_english.py writes the lower ones.
"""


def test_what_users_read_has_no_tics() -> None:
    """Help, errors, names and helps of metrics, panels, alerts, runbooks, docs and answers."""
    bad = [
        f"{passage.place}: {tic}: {passage.text[:200]}"
        for passage in passages()
        if passage.for_users
        for tic in found(passage)
    ]
    assert not bad, "\n".join(bad)


def test_docstrings_and_comments_have_no_more_tics_than_before() -> None:
    now = Counter(
        passage.place.split("/")[0]
        for passage in passages()
        if not passage.for_users
        for _ in found(passage)
    )
    allowed: dict[str, int] = tomllib.loads(COUNTS.read_text())
    over = {name: count for name, count in now.items() if count > allowed.get(name, 0)}
    if "KVSCOPE_UPDATE_ENGLISH" in os.environ and not over:
        lines = [f"{name} = {now[name]}\n" for name in sorted(now)]
        COUNTS.write_text(HEADER + "".join(lines))
    assert not over, (
        f"more of the house's tics than before, by package: {over}; allowed: {allowed}; "
        "python -m tests.repo.english lists them"
    )
