"""The committed JSON is what the generators write, and links lead to what is there."""

import json
import subprocess
import sys
from typing import Any

import pytest

from dashboards.generate import BOARDS, FOLDER, as_json
from dashboards.kit.queries import series
from tests.dashboards.promql import panels_of
from tests.repo.checkout import ROOT

FILES = sorted(FOLDER.glob("*.json"))


def panels(uid: str) -> list[dict[str, Any]]:
    return panels_of(json.loads((FOLDER / f"{uid}.json").read_text()))


@pytest.mark.parametrize("uid", BOARDS)
def test_the_committed_json_is_current(uid: str) -> None:
    committed = (FOLDER / f"{uid}.json").read_text()
    assert committed == as_json(BOARDS[uid]), "out of date: run `make dashboards`"
    assert json.loads(committed)["uid"] == uid


def test_every_json_has_a_generator() -> None:
    assert {path.stem for path in FILES} == set(BOARDS)


def test_every_dashboard_is_described() -> None:
    page = (ROOT / "docs" / "operate" / "dashboards.md").read_text()
    assert not [uid for uid in BOARDS if f"../dashboards/{uid}.json" not in page]


def test_a_dashboard_is_the_same_every_time() -> None:
    for build in BOARDS.values():
        assert as_json(build) == as_json(build)


def test_links_lead_to_dashboards_and_panels_that_exist() -> None:
    for path in FILES:
        text = path.read_text()
        for part in text.split('"/d/')[1:]:
            uid, _, query = part.partition('"')[0].partition("?")
            assert uid in BOARDS, f"{path.name}: {uid}"
            if "viewPanel=" in query:
                number = int(query.split("viewPanel=")[1])
                assert number in {panel["id"] for panel in panels(uid)}


def test_the_same_variables_everywhere_so_that_links_carry_them() -> None:
    names = {
        path.stem: [v["name"] for v in json.loads(path.read_text())["templating"]["list"]]
        for path in FILES
    }
    theirs = names.pop("kvscope-vllm")
    first = ("datasource", "cluster", "namespace", "pod", "model", "instance", "engine")
    names["kvscope-prefix-cache"].remove("fleet")  # the process whose page has these families
    (ours,) = {tuple(found) for found in names.values()}
    assert ours == (*first, "gpu", "ttft", "itl", "objective", "answered", "filters")
    of_its_histograms = {"first_token", "next_token"}  # whose bounds are others than ours
    assert set(theirs) - of_its_histograms <= set(ours)


def test_the_dashboard_for_vllm_asks_for_nothing_of_ours() -> None:
    for panel in panels("kvscope-vllm"):
        for target in panel.get("targets", []):
            assert "kvscope_" not in target["expr"], panel["title"]


def test_a_typo_in_a_query_is_an_error_of_the_generator() -> None:
    with pytest.raises(KeyError, match="kvscope_kv_blocks"):
        series("kvscope_kv_block")
    with pytest.raises(KeyError, match="state"):
        series("kvscope_kv_blocks", state="actve")
    with pytest.raises(KeyError, match="basis"):
        series("kvscope_kv_blocks", basis="active")


def test_generating_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import runpy; import dashboards.generate"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True)
