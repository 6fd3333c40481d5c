"""Digests of tenants: equal where the secret is, and of no use to a reader who guesses names."""

import hashlib
import hmac
import os
import subprocess
import sys

import pytest

from kvscope_events.tenants import SECRET_VARIABLE, share_secret, tenant_digest

SECRET = "of the whole fleet, for a year"
PROGRAM = "from kvscope_events.tenants import tenant_digest; print(tenant_digest('ann'))"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)


def in_another_process() -> str:
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_replicas_with_the_fleets_secret_agree() -> None:
    expected = hmac.new(SECRET.encode(), b"ann", hashlib.sha256).hexdigest()
    assert tenant_digest("ann") == expected[:16] == in_another_process()
    assert tenant_digest(b"ann") == expected[:16], "a header is bytes"
    assert share_secret() == ""


@pytest.mark.parametrize("given", ["", "too short"])
def test_without_a_secret_only_the_processes_of_one_server_agree(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, given)
    problem = share_secret()
    assert (SECRET_VARIABLE in problem) == bool(given)
    first = tenant_digest("ann")
    assert in_another_process() == first, "its engine core hashes as its API server does"
    monkeypatch.setenv(SECRET_VARIABLE, given)
    assert tenant_digest("ann") != first, "another server"
    assert first != hashlib.sha256(b"ann").hexdigest()[:16]
    assert in_another_process() != first
    assert len(os.environ[SECRET_VARIABLE]) >= 16


def test_who_names_no_tenant_has_no_digest() -> None:
    assert {tenant_digest(nobody) for nobody in (None, "", b"")} == {""}
    assert tenant_digest("ann") != tenant_digest("Ann")
    assert len(tenant_digest("z\udcffe")) == 16, "text that is no UTF-8 has one as well"
