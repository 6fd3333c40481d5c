"""The stream of an engine that is not observed."""

import os
from pathlib import Path

import msgspec

from kvscope_events.observers.declined import Declined
from tests.exporter.stream import hello
from tests.support.late_reader import reason_heard


def test_a_forked_child_that_ends_leaves_the_socket_to_its_parent(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    socket = tmp_path / "engine-0.sock"
    declined = Declined(
        f"ipc://{socket}",
        lambda session: msgspec.structs.replace(hello(), session=session),
        "unknown",
    )
    child = os.fork()
    if not child:
        declined.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert reason_heard(f"ipc://{socket}") == "unknown"
    declined.close()
    assert not socket.exists()
