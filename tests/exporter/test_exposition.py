"""The page: golden, strict, complete, small; and what each format owes its reader."""

import os
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_parser

from kvscope_events.wire.frame import DECODE_ERROR_KINDS
from kvscope_exporter.adviser.rank import MAX_PROPOSALS
from kvscope_exporter.catalogue import CATALOGUE, DEFAULT_COMPAT, metric
from kvscope_exporter.catalogue.front_end import FRONT_END
from kvscope_exporter.catalogue.gen_ai import GEN_AI
from kvscope_exporter.catalogue.groups import GROUP_METRICS
from kvscope_exporter.catalogue.http import HTTP
from kvscope_exporter.catalogue.otlp import OTLP
from kvscope_exporter.catalogue.sizing import SIZING_PARTS
from kvscope_exporter.clock import Clock
from kvscope_exporter.state.exhaustion import HORIZONS
from kvscope_exporter.state.shown import SHOWN
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.requests import RequestCounts
from tests.exporter.page import HELLO, families, make_exporter, value
from tests.exporter.scenario import TRACE, play

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
GOLDEN = Path(__file__).parent / "golden" / "openmetrics.txt"
MAX_SERIES = 650
COMPAT_GROUPS = {"vllm", "vllm-legacy", "vllm-residency"}


ABSENT = {
    "kvscope_kv_pool_shortfall_blocks",  # evicted with room left: no size helps; see test_regret
    "kvscope_kv_time_to_exhaustion_seconds",  # 80 ms of steps are no trend; it has its own tests
    *("kvscope_advice_value", "kvscope_advice_saved_tokens_per_second"),  # nor ground for advice
    "kvscope_kv_exhaustion_probability",  # nor enough to forecast; see tests/forecast
    "kvscope_event_decode_errors_total",  # nothing is decoded in one process
    # No connector keeps blocks; see test_holds.
    *("kvscope_kv_held_blocks", "kvscope_kv_oldest_hold_seconds"),
    "kvscope_kv_swap_blocks",  # nothing is swapped; see test_swap_page
    # No page of the server's own is read.
    *("kvscope_page_errors_total", "kvscope_api_responses_total"),
    "kvscope_server_start_time_seconds",
    *(row.name for row in CATALOGUE if row.group == "page"),
}
ABSENT |= {row.name for row in GROUP_METRICS}  # the pool has one group; see test_groups
ABSENT |= {row.name for row in CATALOGUE if row.group == "tiers"}  # of other servers' streams
ABSENT |= {"kvscope_config_last_reload_successful", "kvscope_observer_stopped"}  # of a sidecar
ABSENT |= {row.name for row in (*OTLP, *GEN_AI)}  # of the export by OTLP
ABSENT |= {row.name for row in FRONT_END}  # of an observed vLLM; see test_vllm_front_end
ABSENT |= {row.name for row in CATALOGUE if row.name[:14] == "kvscope_start_"}  # see test_workers
ABSENT |= {row.name for row in CATALOGUE if row.name[:18] == "kvscope_recording_"}  # of a recorder
ABSENT |= {row.name for row in HTTP}  # of a server; see test_requests_counted
ABSENT |= {row.name for row in CATALOGUE if row.group == "fleet"}  # of another process
PLAYED = [row for row in CATALOGUE if row.name not in ABSENT]


def played(**options: object) -> Exporter:
    exporter, subscription = make_exporter(**options)  # type: ignore[arg-type]
    play(subscription)
    exporter.render()  # the scrape whose duration the next one shows
    return exporter


def lines(page: bytes) -> list[str]:
    """Without what differs between machines."""
    machine = ("process_", "kvscope_build_info{")
    return [
        line
        for line in page.decode().splitlines()
        if not line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(machine)
        and not line.startswith("# UNIT process_")
    ]


def test_the_page_is_the_golden_one() -> None:
    """KVSCOPE_UPDATE_GOLDEN=1 rewrites it; read the difference before you commit it."""
    page, _ = played().render(OPENMETRICS)
    actual = "\n".join(lines(page)) + "\n"
    if os.environ.get("KVSCOPE_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(actual)
    assert actual == GOLDEN.read_text()


def test_the_page_begins_with_the_server_and_ends_with_the_exporter_itself() -> None:
    group_of = {row.family: row.group for row in CATALOGUE}
    groups = list(dict.fromkeys(group_of[name] for name in families(played())))
    assert groups[:3] == ["server", "pool", "requests"]
    assert groups[-1] == "self"


def test_the_scenario_is_consistent_and_moves_every_family() -> None:
    exporter = played()
    assert value(exporter, "kvscope_kv_ledger_imbalance_blocks") == 0
    still = {
        "kvscope_kv_ledger_imbalance_blocks",
        "kvscope_fold_errors",
        "kvscope_fold_lag_seconds",
    }
    still |= {"kvscope_event_batches_dropped", "kvscope_event_gaps"}
    still |= {"kvscope_scrape_duration_seconds", "kvscope_kv_deduplicated_blocks"}
    still |= {"kvscope_kv_shared_blocks", "kvscope_source_up", "vllm:cpu_cache_usage_perc"}
    still |= {"vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason"}
    still |= {"vllm:num_requests_swapped"}
    still |= {"kvscope_collect_errors", "kvscope_requests_oldest_wait_seconds"}
    zero = {
        name
        for name, family in families(exporter).items()
        if not any(sample.value for sample in family.samples)
    }
    assert zero == still


def test_every_row_of_the_catalogue_is_exposed_and_nothing_else_is() -> None:
    exposed = families(played())
    assert set(exposed) == {row.family for row in PLAYED}
    for row in PLAYED:
        family = exposed[row.family]
        assert (family.type, family.documentation) == (row.kind, row.help)


def test_all_series_of_a_closed_label_set_exist_from_the_start() -> None:
    exporter, _ = make_exporter()
    exposed = families(exporter)
    for row in CATALOGUE:
        if row.kind != "counter" or row.family == "kvscope_prefix_cache_missed_blocks":
            continue  # gauges wait for the state; causes of misses, too
        if row.family.startswith("kvscope_prefix_cache_whatif_"):
            continue  # so does what depends on the pool's size
        if row.name in ABSENT or row.labels.keys() & {"part"}:
            continue  # as many as there are groups
        if row.labels.keys() & {"gpu", "call"}:
            continue  # a device has what it has; errors and XIDs are too many to be there at 0
        expected = 1
        for label, values in row.closed_labels.items():
            if row.name == "kvscope_events_total" and label == "type":
                expected *= len(HELLO.tells)  # an event that is never reported is not 0
            elif label == "mode":
                continue  # one of them, where nothing is swapped
            elif (label, row.group) != ("source", "self"):  # a stream has one
                expected *= len(values)
        assert len(exposed[row.family].samples) == expected, row.name


def most_series(exporter: Exporter) -> int:
    """Series of its page if everything possible were there.

    The engine's own process counts requests and shows itself, a different one has decode errors.
    What a card in MIG mode has more, it lacks elsewhere: it knows no utilisation and no remapped
    rows.
    """
    page, _ = exporter.render()
    series = [line for line in page.decode().splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in series}) == len(series)
    terms = sum(line.startswith("kvscope_kv_pool_sizing_bytes") for line in series)
    shown = sum("_top_" in line for line in series)  # prefixes and tenants
    mig = sum(line.startswith("kvscope_gpu_mig_") for line in series)
    process = sum(line.startswith("process_") for line in series)
    requests = sum(len(family.samples) for family in RequestCounts(Clock()).collect())
    most = len(series) + len(SIZING_PARTS) - terms - mig
    most += max(requests, len(DECODE_ERROR_KINDS) - process)
    most += 2 * (SHOWN + 1) - shown + 2 * MAX_PROPOSALS
    # The forecast, the time to exhaustion and the shortfall are absent.
    return most + len(HORIZONS) + 2


def test_the_page_has_few_series(capsys: pytest.CaptureFixture[str]) -> None:
    most = most_series(played(compat=DEFAULT_COMPAT))
    with capsys.disabled():
        print(f"\n{most} series of one engine and one GPU at most")
    assert most < MAX_SERIES


def test_openmetrics_parses_strictly_and_has_no_created_series() -> None:
    page, content_type = played().render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    text = page.decode()
    parsed = {f.name: f for f in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert {row.family for row in PLAYED} <= parsed.keys()
    assert b"_created" not in page
    traced = {
        sample.name
        for family in parsed.values()
        for sample in family.samples
        if sample.exemplar is not None and sample.exemplar.labels == {"trace_id": TRACE}
    }
    assert traced >= {
        f"{name}_bucket"
        for name in (
            "kvscope_time_to_first_token_seconds",
            "kvscope_inter_token_latency_seconds",
            "kvscope_request_duration_seconds",
            "kvscope_request_queue_seconds",
        )
    }


def test_text_parses_and_has_neither_created_series_nor_exemplars() -> None:
    page, content_type = played().render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert list(text_parser(page.decode()))
    assert b"_created" not in page
    assert TRACE.encode() not in page


PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html,application/xhtml+xml", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=x", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "text/plain;version=1.0.0;escaping=allow-utf-8",
            "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
        (
            PROMETHEUS_2,
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
        ),
        (
            PROMETHEUS_3,
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
    ],
)
def test_the_content_type_is_right_and_the_colon_survives(
    accept: str | None, content_type: str
) -> None:
    page, answered = played().render(accept)
    assert answered == content_type
    assert b"\nvllm:num_requests_running{" in page


@pytest.mark.parametrize(
    ("compat", "groups"),
    [
        (set(), set()),
        ({"vllm"}, {"vllm"}),
        ({"vllm-legacy"}, {"vllm-legacy"}),
        ({"vllm-residency"}, {"vllm-residency"}),
        (COMPAT_GROUPS, COMPAT_GROUPS),
    ],
)
def test_compatibility_sets_are_selectable(compat: set[str], groups: set[str]) -> None:
    exposed = set(families(played(compat=compat)))
    for group in COMPAT_GROUPS:
        names = {row.family for row in CATALOGUE if row.group == group}
        assert names & exposed == (names if group in groups else set())


def test_an_unknown_compatibility_set_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"compat sglang: expected some of vllm, vllm-legacy, "):
        make_exporter(compat={"sglang"})


def test_our_own_page_has_the_name_that_articles_on_vllm_begin_with() -> None:
    page = played(compat=DEFAULT_COMPAT)
    assert value(page, "vllm:gpu_cache_usage_perc") == value(page, "vllm:kv_cache_usage_perc")


VLLM_DASHBOARD = (
    *(
        f"vllm:{histogram}_{part}"
        for histogram in (
            "e2e_request_latency_seconds",
            "inter_token_latency_seconds",
            "request_time_per_output_token_seconds",
            "time_to_first_token_seconds",
        )
        for part in ("bucket", "sum", "count")
    ),
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_generation_tokens_bucket",
    "vllm:request_success_total",
    "vllm:request_queue_time_seconds_sum",
    "vllm:request_prefill_time_seconds_sum",
    "vllm:request_decode_time_seconds_sum",
    "vllm:request_max_num_generation_tokens_sum",
)
"""Names in the queries of vLLM's own grafana.json, with label model_name."""


@pytest.mark.parametrize("name", VLLM_DASHBOARD)
def test_vllms_own_dashboard_finds_its_series(name: str) -> None:
    assert value(played(), name, model_name="demo") is not None


def test_token_buckets_end_at_the_longest_sequence_as_in_vllm() -> None:
    exporter = played()
    (family,) = (f for f in exporter.registry.collect() if f.name == "vllm:request_prompt_tokens")
    bounds = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
    assert bounds[:3] == ["1.0", "2.0", "5.0"]
    assert bounds[-2:] == ["100000.0", "+Inf"]  # max_model_len is 131,072


def test_bounds_of_two_families_do_not_mix() -> None:
    exposed = families(played())
    for name in ("kvscope_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"):
        bounds = [s.labels["le"] for s in exposed[name].samples if s.name.endswith("_bucket")]
        assert [float(bound) for bound in bounds] == [*metric(name).buckets, float("inf")]
