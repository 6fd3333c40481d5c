"""`kvscope tenants URL...`: one table over all servers, a line for each that does not answer."""

import re

import msgspec
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_events.events import PoolCreated, RequestArrived, RequestScheduled
from kvscope_exporter.answers.tenants import TENANTS
from tests.exporter.page import make_exporter
from tests.exporter.stream import ended, finished, put, step
from tests.exporter.test_tenants import ALICE, SECOND_NS
from tests.support.http_peer import Answer, json, serving

PATH = "/api/tenants"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("KVSCOPE_METRICS_KEY_FILE", raising=False)


def server(*, queue_seconds: int, user: str) -> Answer:
    """One request that has ended, of forty tokens and five."""
    exporter, subscription = make_exporter()
    put(
        subscription,
        *(0, 0),
        PoolCreated(9, 4, 0),
        RequestArrived(0, 40, 8, user),
        RequestScheduled(0, queue_seconds * SECOND_NS, 0),
        ended(0, computed_tokens=10),
        finished(0),
        step(),
    )
    return json(msgspec.json.encode(exporter.answer(TENANTS)).decode())


def cells(output: str) -> list[list[str]]:
    """Cells of the table's rows."""
    lines = output.splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.startswith("tenant "))
    assert all(len(line) <= 80 for line in lines[head:]), "it fits into a terminal"
    gap = r"(?<=\d) (?=%|m?s\b)|(?<=no) (?=user)"
    one_word = (re.sub(gap, "_", line) for line in lines[head + 1 :])
    rows = (line.split() for line in one_word if "%" in line)
    return [[cell.replace("_", " ") for cell in row] for row in rows]


def test_a_tenant_of_two_servers_is_one_row() -> None:
    slow, quick = server(queue_seconds=4, user="alice"), server(queue_seconds=2, user="alice")
    other = server(queue_seconds=0, user="")
    with serving({PATH: slow}) as a, serving({PATH: quick}) as b, serving({PATH: other}) as c:
        result = CliRunner().invoke(app, ["tenants", a.url, b.url, c.url])
    assert result.exit_code == 0, result.output
    assert cells(result.output) == [
        [ALICE, "67 %", "2", "0", "0", "0", "0", "25 %", "3.00 s", "-"],
        ["(no user)", "33 %", "1", "0", "0", "0", "0", "25 %", "0 ms", "-"],
    ]


def test_a_table_without_users_says_why() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), step())
    nothing = json(msgspec.json.encode(exporter.answer(TENANTS)).decode())
    with serving({PATH: nothing}) as idle, serving({PATH: server(queue_seconds=0, user="")}) as one:
        assert CliRunner().invoke(app, ["tenants", idle.url]).output == (
            "No request has been seen yet.\n"
        )
        output = CliRunner().invoke(app, ["tenants", one.url]).output
        assert "No request named a tenant: `user`, or of an observed vLLM" in output
        assert "tokens: share of all" in output
    with serving({PATH: server(queue_seconds=0, user="alice")}) as named:
        assert "No request" not in CliRunner().invoke(app, ["tenants", named.url]).output


def test_a_server_that_does_not_answer_does_not_hide_the_others() -> None:
    with serving({PATH: server(queue_seconds=0, user="alice")}) as peer, serving({}) as old:
        result = CliRunner().invoke(app, ["tenants", old.url, peer.url])
        assert f"{old.url}/api/tenants: answered 404" in " ".join(result.output.split())
    assert result.exit_code == 2
    assert [row[0] for row in cells(result.output)] == [ALICE]


def test_of_many_tenants_only_the_largest_are_printed() -> None:
    with serving({PATH: server(queue_seconds=0, user="alice")}) as peer:
        answers = [peer.url, "--top", "0"]
        assert CliRunner().invoke(app, ["tenants", *answers]).exit_code == 2
        result = CliRunner().invoke(app, ["tenants", peer.url, "--top", "1"])
    assert len(cells(result.output)) == 1
