"""`kvscope observer off` and `on` as processes, against publishers that obey or cannot."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.observers.switched import SwitchReply, SwitchState
from kvscope_events.wire.publisher import WirePublisher
from tests.support.process import forked_kvscope

pytestmark = [pytest.mark.waits, pytest.mark.timeout(120)]


class Engine:
    """A publisher whose orders are carried out at the second time that they come."""

    def __init__(
        self,
        endpoint: str,
        problem: str = "",
        *,
        stays: SwitchState | None = None,
        obeys: bool = True,
    ) -> None:
        """stays: what it is whatever the order."""
        self.endpoint = endpoint
        self.orders: list[bool] = []
        self._problem = problem
        self._stays = stays
        self._publisher = WirePublisher(EventBus(), endpoint)
        if obeys:
            self._publisher.obey = self._order
        self._publisher.start()

    def stop(self) -> None:
        self._publisher.stop()

    def _order(self, on: bool) -> bytes:
        self.orders.append(on)
        wanted: tuple[SwitchState, SwitchState] = ("off", "on")
        done = len(self.orders) > 1 and not self._problem
        state = wanted[on] if done else ("returning" if on else "leaving")
        return SwitchReply(os.getpid(), self._stays or state, self._problem).encoded()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The path of a socket is short."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as name:
        yield Path(name)


def order(*arguments: str, **environment: str) -> tuple[int, str]:
    with forked_kvscope("observer", *arguments, **environment) as process:
        return process.wait(60), process.text


@pytest.mark.parametrize("word", ["off", "on"])
def test_an_order_is_repeated_until_every_engine_has_done_it(short_folder: Path, word: str) -> None:
    engines = [Engine(f"ipc://{short_folder}/engine-{number}.sock") for number in range(2)]
    others = [
        Engine(f"ipc://{short_folder}/{name}.sock", obeys=False)
        for name in ("api-0", "engine-0-worker-0")
    ]
    try:
        status, text = order(word, str(short_folder))
    finally:
        for engine in (*engines, *others):
            engine.stop()
    assert status == 0, text
    for engine in engines:
        assert engine.orders == [word == "on"] * 2
        assert f"{engine.endpoint}: {word} (process {os.getpid()})\n" in text


def test_what_cannot_be_done_is_said(short_folder: Path) -> None:
    refusing = Engine(f"ipc://{short_folder}/engine-0.sock", "LookupError: its engine has ended")
    deaf = Engine(f"ipc://{short_folder}/other.sock", obeys=False)
    unfit = Engine(
        f"ipc://{short_folder}/unfit.sock", "a part would stay", stays="cannot be switched"
    )
    try:
        never = order("off", unfit.endpoint)
        refused = order("on", refusing.endpoint)
        unable = order("off", deaf.endpoint)
    finally:
        for engine in (refusing, deaf, unfit):
            engine.stop()
    assert refused[0] == unable[0] == never[0] == 1
    assert unfit.orders == [False]
    assert f"{unfit.endpoint}: it cannot be switched: a part would stay" in never[1]
    assert "it stays returning: LookupError: its engine has ended" in refused[1]
    assert "no observer that can be switched while it runs" in unable[1]


def test_the_only_observed_server_is_found_and_several_are_named(
    short_folder: Path,
) -> None:
    here = {"KVSCOPE_RUN_DIR": str(short_folder)}
    missing = order("off", **here)
    assert missing[0] == 2
    assert f"no observed server was found in {short_folder}: start one" in missing[1]
    folders = [short_folder / "run-1" / "sockets", short_folder / "vllm"]
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True)
        folder.parent.chmod(0o700)
    engine = Engine(f"ipc://{folders[0]}/engine-0.sock")
    try:
        status, text = order("off", **here)
        second = Engine(f"ipc://{folders[1]}/engine-0.sock")
        several = order("off", **here)
        second.stop()
    finally:
        engine.stop()
    assert status == 0, text
    assert f"{engine.endpoint}: off" in text
    assert several[0] == 2
    assert f"name one of {folders[0]}, {folders[1]}" in several[1]
