"""Plain English: none of the house's tics, in what users read and in docstrings and comments."""

from tests.repo.english import found, passages


def test_no_passage_has_tics() -> None:
    """Help, errors, panels, alerts, runbooks, docs and answers; docstrings and comments."""
    bad = [
        f"{passage.place}: {tic}: {passage.text[:200]}"
        for passage in passages()
        for tic in found(passage)
    ]
    assert not bad, "\n".join(bad)
