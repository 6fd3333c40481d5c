"""`kvscope admin gpu-release URL`: what it prints, and who may use it."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_exporter.machine.gpu import GpuPoller
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import bare_app
from kvscope_exporter.web.orders import gpu_router
from tests.fakes.nvml import Simulated
from tests.gpu.test_poller import wedge
from tests.support.waiting import wait_for


def gpu(action: str, url: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["admin", f"gpu-{action}", url])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("keyed", [False, True])
def test_gpus_are_released_and_read_again_by_command(
    hardware: Simulated, start: Callable[..., GpuPoller], keyed: bool
) -> None:
    poller = start()
    routes = bare_app("x")
    routes.include_router(gpu_router(poller))
    config = AccessConfig(pages=Credentials(["secret"])) if keyed else AccessConfig()
    with HttpServer(Access(routes, config), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        code, output = gpu("release", url)
        if keyed:
            assert code == 2
            assert "it wants a token: --token-file FILE" in output
            assert poller.state == "polling"
            return
        assert (code, output) == (0, "released")
        assert hardware.references == 0
        assert gpu("resume", url) == (0, "starting")
        wait_for(lambda: poller.state == "polling")
        wedge(hardware, 3000)
        assert gpu("release", url) == (1, "releasing")
