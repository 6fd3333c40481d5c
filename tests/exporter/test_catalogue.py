"""The catalogue keeps the house's rules and answers a typo."""

import re
from typing import get_args

import pytest

from kvscope_events.events import EngineEvent
from kvscope_events.producers import VLLM_FRONT_END_EVENTS
from kvscope_exporter.catalogue import CATALOGUE, GROUPS, Metric, metric, name

EVENTS = {event.__name__ for event in get_args(EngineEvent)}
OURS = [row for row in CATALOGUE if row.name.startswith("kvscope_")]
COMPAT = [row for row in CATALOGUE if row.group.startswith("vllm")]


def test_a_name_is_returned_and_a_typo_gets_the_nearest_names() -> None:
    assert name("kvscope_kv_blocks") == "kvscope_kv_blocks"
    with pytest.raises(KeyError, match="did you mean kvscope_kv_blocks"):
        name("kvscope_kv_block")
    with pytest.raises(KeyError, match="no metric 'zzz' in the catalogue"):
        name("zzz")


def test_every_row_is_complete(subtests: pytest.Subtests) -> None:
    for row in CATALOGUE:
        with subtests.test(row.name):
            assert re.fullmatch(r"[A-Z].*\.", row.help), "help ends with a full stop"
            assert not row.notes or row.notes.endswith(".")
            assert row.group in GROUPS
            assert set(row.events) <= EVENTS
            assert (row.kind == "histogram") == bool(row.buckets), "without buckets it is a summary"
            assert (row.kind == "counter") == row.name.endswith("_total") or row.kind == "histogram"
            assert all(
                values is None or len(set(values)) == len(values) for values in row.labels.values()
            )


def test_our_names_follow_the_style(subtests: pytest.Subtests) -> None:
    for row in OURS:
        with subtests.test(row.name):
            assert re.fullmatch(r"kvscope(_[a-z]+)+", row.name)
            assert row.otel_name or row.kind == "info"
            first_labels = list(row.labels)[:2]
            if row.group == "gpu":
                assert "engine" not in row.labels
                assert not row.events, "NVML says it, whatever an engine tells"
            elif row.group == "front_end":
                assert first_labels == ["model_name", "front_end"]
                assert set(row.events) <= VLLM_FRONT_END_EVENTS
            elif row.group not in ("self", "server", "fleet"):
                assert first_labels in (["model_name", "engine"], ["gpu", "uuid"])
                assert row.events or row.group in ("device_memory", "host", "page"), (
                    "what else is it read from?"
                )
            if row.group == "gpu":
                assert (
                    first_labels == ["gpu", "uuid"]
                    or "_nvml_" in row.name
                    or "_sample_" in row.name
                )
            if row.unit in {"seconds", "bytes", "ratio", "celsius", "watts", "joules", "hertz"}:
                says = {"ratio": ("_ratio", "_probability")}.get(row.unit, f"_{row.unit}")
                assert row.family.endswith(says)


def test_compatibility_names_have_the_colon_and_no_opentelemetry_name() -> None:
    assert all(row.name.startswith("vllm:") and not row.otel_name for row in COMPAT)


def test_names_of_others_are_those_of_opentelemetry_and_of_http_servers() -> None:
    others = [row for row in CATALOGUE if row not in OURS and row not in COMPAT]
    assert {row.group for row in others} == {"gen_ai", "http"}
    assert all(not row.otel_name for row in others if row.group == "http")
    for row in (row for row in others if row.group == "gen_ai"):
        assert row.name == f"{row.otel_name.replace('.', '_')}_seconds"


def test_opentelemetry_names_are_unique_and_every_group_has_rows() -> None:
    names = [row.otel_name for row in CATALOGUE if row.otel_name]
    assert len(set(names)) == len(names)
    assert {row.group for row in CATALOGUE} == set(GROUPS)


def test_a_row_refuses_nonsense() -> None:
    row = metric("kvscope_step_duration_seconds")
    fields = {"name": "kvscope_x", "help": "X.", "unit": "", "group": row.group}
    with pytest.raises(ValueError, match="longer than 159: move some to notes"):
        Metric(**{**fields, "help": 30 * "Blocks"}, kind="gauge")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has buckets"):
        Metric(**fields, kind="gauge", buckets=(1,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="increase"):
        Metric(**fields, kind="histogram", buckets=(2, 1))  # type: ignore[arg-type]
