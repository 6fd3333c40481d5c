"""The systemd units: accepted by systemd, and in accord with the sidecar's list."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE
from tests.repo.checkout import ROOT

FOLDER = ROOT / "deploy" / "systemd"
TEMPLATE = (FOLDER / "vllm@.service").read_text()


def test_the_sidecar_watches_the_folder_and_port_of_each_instance() -> None:
    result = CliRunner().invoke(
        app, ["sidecar", "--check", "--config", str(FOLDER / "sidecar.yaml")]
    )
    assert result.exit_code == 0, result.output
    (folder,) = re.findall(rf"Environment={DIRECTORY_VARIABLE}=(\S+)", TEMPLATE)
    servers = yaml.safe_load((FOLDER / "sidecar.yaml").read_text())["servers"]
    for number, server in enumerate(servers):
        assert server["events"] == [f"ipc://{folder.replace('%i', str(number))}/*"]
        assert server["url"].endswith(f":{8000 + number}")
    assert len(servers) == 8


@pytest.mark.parametrize("name", ["vllm@.service", "observed.conf"])
def test_systemd_makes_the_folder_of_the_sockets_for_the_server_alone(name: str) -> None:
    unit = (FOLDER / name).read_text()
    (folder,) = re.findall(rf"Environment={DIRECTORY_VARIABLE}=/run/(\S+)", unit)
    assert f"\nRuntimeDirectory={folder}\nRuntimeDirectoryMode=0700\n" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    drop_in = tmp_path / "llm.service.d"
    drop_in.mkdir()
    shutil.copy(FOLDER / "observed.conf", drop_in)
    (tmp_path / "llm.service").write_text("[Service]\nExecStart=/bin/true\n")
    for unit in ("vllm@.service", "kvscope-sidecar.service"):
        text = re.sub(r"(?m)^(Exec\w+=)/opt/\S+", r"\1/bin/true", (FOLDER / unit).read_text())
        (tmp_path / unit).write_text(text.replace("User=vllm", "User=root"))
    units = [str(path) for path in tmp_path.glob("*.service")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/usr/lib/systemd/system", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, ours) == (0, [])
