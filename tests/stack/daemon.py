"""A Docker daemon and its Compose, where there are some."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.repo.checkout import ROOT


def unable() -> str | None:
    """The reason why containers cannot be tried here."""
    if "KVSCOPE_TEST_STACK" not in os.environ and os.environ.get("CI") != "true":
        return "takes minutes: KVSCOPE_TEST_STACK=1 runs it"
    if shutil.which("docker") is None:
        return "there is no docker"
    for what in (["info"], ["compose", "version"]):
        asked = subprocess.run(["docker", *what], capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            return f"docker {what[0]} fails: {(asked.stderr or asked.stdout).strip()[:200]}"
    return None


def docker(arguments: Sequence[str], **environment: str) -> str:
    """Output of the client, started in the checkout; it must succeed."""
    done = subprocess.run(
        ["docker", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
