"""Kubernetes objects as tests read them: by kind and name, and what is in their pods."""

import subprocess
from typing import Any

import yaml

Object = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Dashboards are long: libyaml reads them ten times as fast."""


def one(text: str) -> Object:
    """The object of a document."""
    content: Object = yaml.load(text, Loader=_LOADER)
    return content


def parsed(text: str) -> dict[tuple[str, str], Object]:
    """The objects of a stream of YAML documents, by kind and name, each once."""
    found: dict[tuple[str, str], Object] = {}
    for content in yaml.load_all(text, Loader=_LOADER):
        key = content["kind"], content["metadata"]["name"]
        assert key not in found, f"{key} twice"
        found[key] = content
    return found


def pod_of(deployment: Object) -> Object:
    """Its pods' metadata and spec."""
    template: Object = deployment["spec"]["template"]
    return template


def container(deployment: Object, name: str) -> Object:
    """The container or init container of that name."""
    spec = pod_of(deployment)["spec"]
    (found,) = (
        each
        for each in (*spec.get("initContainers", ()), *spec["containers"])
        if each["name"] == name
    )
    return dict(found)


def output(*command: str) -> str:
    """A command's output; fails with its messages if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
