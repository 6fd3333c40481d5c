"""`kvscope doctor` about a fleet: replicas that are not counted, names that cannot be compared."""

import msgspec
import pytest

from kvscope.doctor.fleet import name_findings
from kvscope.doctor.observers import Observer
from kvscope.doctor.target import target_report
from kvscope_exporter.fleet.answer import fleet_answer
from kvscope_exporter.fleet.fleet import Fleet
from tests.exporter.stream import hello
from tests.exporter.test_fleet_contradictions import StoredNames, document, names, part
from tests.support.http_peer import json, serving, text

PAGE = '# TYPE kvscope_fleet_replicas gauge\nkvscope_fleet_replicas{state="counted"} 1\n'


def findings(fleet: Fleet) -> list[tuple[str, str, str]]:
    answer = msgspec.json.encode(fleet_answer(fleet)).decode()
    answers = {
        "/metrics": text(PAGE, "text/plain; version=0.0.4"),
        "/health": json('{"status": "ok"}'),
        "/api/fleet": json(answer),
    }
    with serving(answers) as peer:
        report = target_report(peer.url, asked_for=True, look_for=list)
    return [
        (f.subject, f.status, f.text)
        for f in report.findings
        if f.subject not in ("server", "page")
    ]


def test_a_replica_that_is_not_counted_is_named_with_the_reason() -> None:
    fleet = Fleet()
    fleet.fold(
        [("a", document(part(StoredNames(names(1))))), ("b", document(part(StoredNames(names(1)))))]
    )
    assert findings(fleet) == [
        ("fleet", "ok", "1 of 2 replicas are counted"),
        ("replica", "note", "b/llama/0 is doubled: the same engine as a/llama/0"),
    ]


def test_names_that_differ_are_a_problem_with_the_change_that_helps() -> None:
    fleet = Fleet()
    other = part(StoredNames(names(1)), name_space="two", session="t", block_size=32)
    fleet.fold([("a", document(part(StoredNames(names(1))))), ("b", document(other))])
    counted, problem = findings(fleet)
    assert counted == ("fleet", "ok", "2 of 2 replicas are counted")
    assert problem[:2] == ("names", "problem")
    assert "set the same block size" in problem[2]


def test_a_fleet_without_replicas_is_a_problem() -> None:
    assert findings(Fleet()) == [("fleet", "problem", "0 of 0 replicas are counted")]


@pytest.mark.parametrize(("spaces", "number"), [(["x", "y"], 1), (["x", "x"], 0), (["x"], 0)])
def test_engines_here_whose_names_differ_are_noted(spaces: list[str], number: int) -> None:
    found = [Observer(f"ipc://{space}", hello(name_space=space)) for space in spaces]
    noted = name_findings(found)
    assert len(noted) == number
    assert all("PYTHONHASHSEED" in finding.text for finding in noted)
