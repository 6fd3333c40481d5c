"""The dashboards against the pages of real servers, and the catalogue against both."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate import BOARDS, FOLDER
from kvscope_alerts.dcgm import FAMILIES
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_monitoring.elsewhere import ELSEWHERE
from tests.dashboards.asking import targets
from tests.dashboards.conftest import staged
from tests.dashboards.exceptions import MAY_BE_EMPTY, NOT_SHOWN
from tests.dashboards.lint import lint
from tests.dashboards.of_vllm import NOT_OF_VLLM
from tests.dashboards.promql import Exposed, check_query, names_in, panels_of, read
from tests.repo.checkout import ROOT

pytestmark = pytest.mark.waits

NO_VARIABLES: set[str] = set()


def load(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Exposed:
    """Series of the two servers, and those that only other hardware or an incident has."""
    elsewhere = (
        "# TYPE kvscope_gpu_mig_memory_bytes gauge\n"
        'kvscope_gpu_mig_memory_bytes{gpu="0",uuid="",gpu_instance_id="1",state="used"} 0\n'
        "# TYPE kvscope_gpu_xid_events_total counter\n"
        'kvscope_gpu_xid_events_total{gpu="0",uuid="",xid="79"} 1\n'
        "# TYPE kvscope_gpu_xid_last_age_seconds gauge\n"
        'kvscope_gpu_xid_last_age_seconds{gpu="0",uuid="",xid="79"} 1\n'
        "# TYPE kvscope_gpu_nvml_errors_total counter\n"
        'kvscope_gpu_nvml_errors_total{call="Shutdown",code="timeout"} 1\n'
        "# TYPE kvscope_incident_age_seconds gauge\n"
        'kvscope_incident_age_seconds{model_name="demo",engine="0",cause="queue"} 1\n'
        "# TYPE kvscope_page_errors_total counter\n"
        'kvscope_page_errors_total{source="page",endpoint="e",kind="tls"} 0\n'
        "# TYPE kvscope_kv_time_to_exhaustion_seconds gauge\n"
        'kvscope_kv_time_to_exhaustion_seconds{model_name="demo",engine="0"} 1\n'
        "# TYPE kvscope_kv_exhaustion_probability gauge\n"
        + "".join(
            f'kvscope_kv_exhaustion_probability{{model_name="demo",engine="0",'
            f'horizon_seconds="{horizon}"}} 0\n'
            for horizon in (10, 30, 60)
        )
        + "# TYPE kvscope_kv_pool_shortfall_blocks gauge\n"
        'kvscope_kv_pool_shortfall_blocks{model_name="demo",engine="0"} 1\n'
        "# TYPE kvscope_api_responses_total counter\n"
        'kvscope_api_responses_total{model_name="demo",engine="0",status="5xx"} 0\n'
        "# TYPE kvscope_server_start_time_seconds gauge\n"
        'kvscope_server_start_time_seconds{model_name="demo",engine="0"} 1\n'
        "# TYPE kvscope_kv_swap_blocks gauge\n"
        'kvscope_kv_swap_blocks{model_name="demo",engine="0",state="used"} 0\n'
        "# TYPE kvscope_event_decode_errors_total counter\n"
        'kvscope_event_decode_errors_total{source="wire",kind="malformed"} 1\n'
        "# TYPE kvscope_observer_stopped gauge\n"
        'kvscope_observer_stopped{source="wire"} 0\n'
        + "".join(
            f"# TYPE kvscope_host_memory_{figure}_bytes gauge\n"
            f'kvscope_host_memory_{figure}_bytes{{model_name="demo",engine="0"}} 1\n'
            for figure in ("pinned", "limit", "usage", "unreclaimable")
        )
        + "".join(
            f"# TYPE kvscope_kv_tier_{name} {kind}\n"
            f'kvscope_kv_tier_{name}{{model_name="demo",engine="0",tier="host"}} 1\n'
            for name, kind in {
                "used_ratio": "gauge",
                **dict.fromkeys(
                    [
                        *("hit_tokens_total", "queried_tokens_total", "stored_blocks_total"),
                        "removed_blocks_total",
                    ],
                    "counter",
                ),
            }.items()
        )
        + "".join(
            f"# TYPE kvscope_advice_{figure} gauge\n"
            f'kvscope_advice_{figure}{{model_name="demo",engine="0",option="replicas"}} 1\n'
            for figure in ("value", "saved_tokens_per_second")
        )
    )
    with staged(tmp_path_factory.mktemp("stage")) as stage:
        pages = read([*stage.pages(), elsewhere])
    of_others = {
        row.name: row
        for row in CATALOGUE
        if (row.servers and "kvscope" not in row.servers) or row.group == "front_end"
    }
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    for name in FAMILIES:
        pages.kinds[name], pages.labels[name] = "gauge", {"gpu", "uuid", "card"}
    for name, row in (ELSEWHERE | of_others).items():
        for suffix in suffixes.get(row.kind, ("",)):
            pages.kinds[name + suffix] = row.kind
            pages.labels[name + suffix] = {*row.labels, *(("le",) if suffix == "_bucket" else ())}
    return pages


@pytest.mark.slow
@pytest.mark.parametrize("uid", BOARDS)
def test_a_dashboard_keeps_the_rules_and_asks_for_what_is_exported(
    uid: str, exposed: Exposed
) -> None:
    findings = list(lint(load(FOLDER / f"{uid}.json"), exposed))
    assert not findings, "\n".join("  ".join(finding) for finding in findings)


def used_by_dashboards() -> set[str]:
    names = set()
    for path in FOLDER.glob("*.json"):
        board = load(path)
        variables = {v["name"] for v in board["templating"]["list"]}
        for panel in panels_of(board):
            for target in panel.get("targets", []):
                names |= names_in(target["expr"], variables)
    return names


def used_by_rules() -> set[str]:
    """Names in rule files whose expressions parse without templates."""
    names = set()
    for path in (ROOT / "alerts").glob("*.rules.yml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                names |= names_in(rule["expr"], NO_VARIABLES)
    return names


def test_every_family_is_shown_or_listed_with_a_reason() -> None:
    suffixes = ("", "_bucket", "_sum", "_count")
    drawn = used_by_dashboards()
    used = drawn | used_by_rules()
    shown = {row.name for row in CATALOGUE if any(row.name + s in used for s in suffixes)}
    every = {row.name for row in CATALOGUE}
    missing = every - shown - NOT_SHOWN.keys()
    assert not missing, f"neither shown nor listed: {sorted(missing)}"
    assert not NOT_SHOWN.keys() - every, "listed, but not in the catalogue"
    by_dashboards = {row.name for row in CATALOGUE if row.name in drawn}
    assert not NOT_SHOWN.keys() & by_dashboards, "listed as not shown, but shown"


def test_what_is_only_exported_elsewhere_is_shown_and_not_exported() -> None:
    used = {name.removesuffix("_bucket").removesuffix("_count") for name in used_by_dashboards()}
    assert used >= ELSEWHERE.keys()
    assert not ELSEWHERE.keys() & {row.name for row in CATALOGUE}


GOOD = "sum(rate(kvscope_preemptions_total[$__rate_interval]))"
EXPOSED = Exposed(
    {"kvscope_preemptions_total": "counter", "kvscope_kv_blocks": "gauge"},
    {"kvscope_preemptions_total": {"cause"}, "kvscope_kv_blocks": {"state"}},
)


def codes_of(expr: str) -> set[str]:
    return {code for code, _, _ in check_query("here", expr, NO_VARIABLES, EXPOSED, instant=False)}


@pytest.mark.parametrize(
    ("code", "expr"),
    [
        ("D-promql", "sum(("),
        ("D-promql", "kvscope_kv_blocks{state=~'$nothing'}"),
        ("D-selector", '{state="free"}'),
        ("D-unknown-metric", "kvscope_kv_block"),
        ("D-unknown-label", 'kvscope_kv_blocks{stat="free"}'),
        ("D-counter-agg", "sum(kvscope_preemptions_total)"),
        ("D-rate-on-gauge", "rate(kvscope_kv_blocks[$__rate_interval])"),
        ("D-rate-interval", "rate(kvscope_preemptions_total[5m])"),
        ("D-range", "increase(kvscope_preemptions_total[$__range])"),
    ],
)
def test_the_linter_finds_a_wrong_query(code: str, expr: str) -> None:
    assert code in codes_of(expr)
    assert not codes_of(GOOD)


def spoil(code: str) -> dict[str, Any]:
    """A real dashboard with one thing wrong."""
    board = load(FOLDER / "kvscope-kv-pool.json")
    stat = next(p for p in board["panels"] if p["type"] == "stat")
    drawn = next(p for p in board["panels"] if p["type"] == "timeseries")
    variable = next(v for v in board["templating"]["list"] if v["type"] == "query")
    match code:
        case "D-uid":
            board["uid"] = ""
        case "D-tags":
            board["tags"] = []
        case "D-title":
            board["title"] = "KV pool"
        case "D-uneditable":
            board["editable"] = True
        case "D-description":
            stat["description"] = ""
        case "D-unit":
            stat["fieldConfig"]["defaults"]["unit"] = "blocks"
        case "D-no-value":
            del stat["fieldConfig"]["defaults"]["noValue"]
        case "D-legend":
            drawn["targets"][0]["legendFormat"] = ""
        case "S-legend":
            drawn["options"]["legend"]["showLegend"] = False
        case "S-calcs":
            stat["options"]["reduceOptions"]["calcs"] = []
        case "S-grid":
            stat["gridPos"]["w"] += 1
        case "S-panel-id":
            stat["id"] = drawn["id"]
        case "D-refid":
            drawn["targets"] = drawn["targets"][:1] * 2
        case "D-template-all":
            del variable["allValue"]
        case "D-template-refresh":
            variable["refresh"] = 1
        case "D-template-unused":
            board["templating"]["list"].append({**variable, "name": "more"})
    return board


@pytest.mark.parametrize(
    "code",
    [
        *("D-uid", "D-tags", "D-title", "D-uneditable", "D-description", "D-unit", "D-no-value"),
        *("D-legend", "S-legend", "S-calcs", "S-grid", "S-panel-id", "D-refid"),
        *("D-template-all", "D-template-refresh", "D-template-unused"),
    ],
)
def test_the_linter_finds_what_is_wrong_with_a_panel(code: str) -> None:
    sound = {finding[0] for finding in lint(load(FOLDER / "kvscope-kv-pool.json"), EXPOSED)}
    assert code not in sound
    assert code in {finding[0] for finding in lint(spoil(code), EXPOSED)}


def test_what_may_be_empty_is_there() -> None:
    every = {key for uid in BOARDS for key, _ in targets(uid)}
    listed = MAY_BE_EMPTY.keys() | NOT_OF_VLLM.keys()
    assert not listed - every, "listed, but there is no such query"
