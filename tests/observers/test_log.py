"""Lines of an observer never reach its server as an error, whatever the server's log does."""

import logging

import pytest

from kvscope_events.observers import log


class Broken(logging.Handler):
    """A server's own handler, with a defect."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ZeroDivisionError


def test_a_handler_that_raises_does_so_only_for_its_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.Logger("server", logging.INFO)
    logger.addHandler(Broken())
    monkeypatch.setattr(log, "_logger", logger)
    log.say("observing")
    log.warn("off: for a reason")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "kvscope: observing (its log: ZeroDivisionError)",
        "kvscope: off: for a reason (its log: ZeroDivisionError)",
    ]
