"""A page says which server it is of; some say it of others, too."""

import pytest

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.scrape import detect
from tests.scrape.cases import others, sglang, vllm
from tests.scrape.cases.case import Case


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in (*vllm.CASES, *sglang.CASES, *others.CASES)
        # A worker of Dynamo is recognised by Dynamo's own families, of which these pages have none.
        if not (case.kind == "dynamo" and "worker with" in case.name and "two" not in case.name)
    ],
    ids=lambda case: f"{case.kind}: {case.name}",
)
def test_the_server_of_a_page(case: Case) -> None:
    assert detect(case.page) == case.kind


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("", None),
        ("<html>", None),
        ("node_cpu_seconds_total 1\n", None),
        ("# HELP vllm:x A comment.\n", None),
        ('kvscope_kv_blocks{state="free"} 1\nvllm:num_requests_running 1\n', "kvscope"),
        ('vllm:num_requests_running{engine="0"} 1\ndynamo_component_uptime_seconds 1\n', "dynamo"),
        ('vllm:current_qps{server="a"} 1\nvllm:num_requests_running{server="a"} 1\n', None),
    ],
)
def test_names_of_one_server_on_the_page_of_another(page: str, kind: ServerKind | None) -> None:
    assert detect(page) == kind
