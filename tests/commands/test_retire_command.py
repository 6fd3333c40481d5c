"""`kvscope admin forget URL` against a sidecar's port: what it prints, and who may use it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.exporter.test_presence import Engine, state
from tests.support.waiting import wait_for


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    tmp_path.chmod(0o700)
    servers = [
        ServerConfig(name=name, events=(f"ipc://{tmp_path}/{name}.sock",))
        for name in ("here", "never")
    ]
    made = Sidecar(servers)
    made.start()
    yield made
    made.stop()


def retire(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["admin", "forget", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_a_server_is_retired_by_command(sidecar: Sidecar, tmp_path: Path) -> None:
    engine = Engine(f"ipc://{tmp_path}/here.sock")
    here, never = sidecar.server("here"), sidecar.server("never")
    assert here is not None
    assert never is not None
    wait_for(lambda: state(here) == "ready")
    with HttpServer(Access(sidecar_app(sidecar), AccessConfig()), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert retire(url, "--target", "never") == (
            0,
            f"retired ipc://{tmp_path}/never.sock "
            "nothing of the server is shown until it is heard again",
        )
        assert state(never) is None
        assert retire(url, "--target", "here") == (1, "nothing to retire: the server is ready")
        assert state(here) == "ready"
        code, output = retire(url)
        assert code == 2
        assert "name a server: --target NAME, one of: here, never" in output
        code, output = retire(url, "--target", "other")
        assert code == 2
        assert "no server 'other' here; known: here, never" in output
        form = httpx.post(f"{url}/api/retire?target=never", data={"a": "b"})
        assert form.status_code == 415
        assert httpx.get(f"{url}/api/retire").status_code == 405
    engine.end()


def test_a_key_is_needed_where_pages_need_one(sidecar: Sidecar, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    key.chmod(0o600)
    config = AccessConfig(pages=Credentials(["secret"]))
    with HttpServer(Access(sidecar_app(sidecar), config), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        code, output = retire(url, "--target", "never")
        assert code == 2
        assert "it wants a token: --token-file FILE" in output
        assert retire(url, "--target", "never", "--token-file", str(key))[0] == 0
