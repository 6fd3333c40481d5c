"""The files for Ray Serve LLM agree with each other, without Ray."""

import re

import yaml

from kvscope_exporter.configuration import read_configuration
from tests.support.process import ROOT

FOLDER = ROOT / "deploy" / "ray"


def test_the_versions_agree() -> None:
    (version,) = re.findall(r"(?m)^RAY \?= (.+)$", (ROOT / "Makefile").read_text())
    assert f"{version}}}" in (ROOT / "scripts" / "ray-env").read_text()


def test_the_sidecar_watches_each_folder_that_a_replica_may_take() -> None:
    (application,) = yaml.safe_load((FOLDER / "vllm.yaml").read_text())["applications"]
    (config,) = application["args"]["llm_configs"]
    folder = config["runtime_env"]["env_vars"]["KVSCOPE_OBSERVER_DIR"]
    slots = config["callback_config"]["callback_kwargs"]["slots"]
    watched = read_configuration(FOLDER / "sidecar.yaml").servers
    assert [list(server.events) for server in watched] == [
        [f"ipc://{folder}/{slot}/*"] for slot in range(slots)
    ]
    module, _, name = config["callback_config"]["callback_class"].rpartition(".")
    assert f"class {name}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()
