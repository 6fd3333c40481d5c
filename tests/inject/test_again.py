"""Servers that are observed already are observed as the options say now, or stay as they were."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.inject.kubernetes import Wish
from kvscope.inject.report import Report
from kvscope.inject.stream import changed
from tests.inject.odd_inputs import ARGUMENTS_ONLY, OBSERVABLE, SEVERAL_CONTAINERS, SHELL_FORM
from tests.inject.pods import added_to, observed
from tests.inject.run import IMAGE, loaded, run
from tests.inject.test_compose_files import LIST, MAPPING, NAMED
from tests.inject.test_left_alone import RAY, VLLM, container, deployment
from tests.inject.test_observable import as_json, as_kyaml, as_yaml

TEXTS = [*OBSERVABLE.values(), *NAMED.values(), RAY]
WISHES = st.builds(
    Wish,
    image=st.sampled_from(["a.example/exporter:1", "a.example/exporter@sha256:0123", "exporter"]),
    port=st.sampled_from([8010, 9000, 65535]),
    container=st.sampled_from([None, None, None, "vllm", "worker", "ray-worker", "llama"]),
    user=st.sampled_from([None, 7, 1000]),
    is_user_assigned=st.booleans(),
    key=st.sampled_from([None, ("page", "token"), ("page", "bearer")]),
    is_native=st.booleans(),
    is_fail_open=st.booleans(),
    blocks=st.sampled_from([1, 200_000, 4_000_000]),
    cpu_limit=st.sampled_from([None, "1", "1500m"]),
)


def outcome_of(text: str, wish: Wish) -> tuple[str, Report]:
    report = Report()
    return changed(text, wish, report, is_removal=False), report


@given(text=st.sampled_from(TEXTS), first=WISHES, second=WISHES)
def test_observing_again_is_observing_for_the_first_time(
    text: str, first: Wish, second: Wish
) -> None:
    once, before = outcome_of(text, first)
    fresh, now = outcome_of(text, second)
    again, report = outcome_of(once, second)
    assert changed(again, second, Report(), is_removal=True) == text
    assert outcome_of(again, second)[0] == again
    is_whole = not before.refused and not now.refused and now.done
    if is_whole and first.container == second.container:
        assert again == fresh
        assert (report.done, report.refused) == (now.done, 0)
    if not report.done:
        assert again == once, "what stays observed stays as it was"


@pytest.mark.parametrize(
    ("option", "differs"),
    [
        ("--exporter-image=registry.example.com/exporter:2", "(image)"),
        ("--port=9000", "(args, ports)"),
        ("--blocks=1000000", "(resources)"),
        ("--cpu-limit=1", "(resources)"),
        ("--key-secret=page", "(args, volumeMounts, volumes/kvscope-key)"),
        ("--ordinary-sidecar", "(initContainers/kvscope, containers/kvscope)"),
        (
            "--fail-open",
            "(initContainers/kvscope-observer, initContainers/kvscope, "
            "volumeMounts, containers/kvscope-observer, containers/kvscope)",
        ),
    ],
)
@pytest.mark.parametrize("write", [None, as_yaml, as_json, as_kyaml])
def test_another_option_is_an_update_that_says_what_differs(
    option: str, differs: str, write: Callable[[Any], str] | None
) -> None:
    once = run(SHELL_FORM).text
    stored = once if write is None else write({"kind": "List", "items": loaded(once)})
    again = run(stored, option)
    assert again.code == 0
    assert f"StatefulSet/shell: updated {differs}: container vllm" in again.said
    assert loaded(again.text) == loaded(run(SHELL_FORM, option).text)
    if write is None:
        assert again.text == run(SHELL_FORM, option).text
    back = run(again.text)
    assert "StatefulSet/shell: updated" in back.said


def test_the_same_options_change_nothing_and_say_so() -> None:
    once = run(SHELL_FORM, "--port=9000").text
    again = run(once, "--port=9000")
    assert (again.text, again.code) == (once, 0)
    assert "already observed in this way" in again.said
    assert "updated" not in again.said


def test_what_an_api_server_adds_is_no_difference() -> None:
    (content,) = loaded(run(SHELL_FORM, "--key-secret=page").text)
    (pod,) = observed(content)
    for one in pod["initContainers"]:
        one |= {"imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
        for port in one.get("ports", ()):
            port["protocol"] = "TCP"
    pod["volumes"][-1]["secret"]["defaultMode"] = 420
    stored = as_yaml(content)
    again = run(stored, "--key-secret=page")
    assert (again.text, again.code) == (stored, 0)


def test_what_was_taken_out_by_hand_is_put_back() -> None:
    once = run(SHELL_FORM).text
    broken = once.replace("        - name: KVSCOPE_OBSERVER_DIR\n", "        - name: OTHER\n")
    again = run(broken)
    assert "updated (env)" in again.said
    assert "name: KVSCOPE_OBSERVER_DIR" in again.text


def test_a_server_that_the_options_no_longer_fit_stays_observed_as_it_was() -> None:
    own = deployment(container("command: [vllm, serve]", image="ours/llm"))
    once = run(own, "--user=7").text
    again = run(once, "--port=9000")
    assert (again.text, again.code) == ("", 1)
    assert "the user of container vllm is in its image" in again.said
    assert "It stays observed as it was" in again.said
    beside = run(f"{once}---\n{ARGUMENTS_ONLY}", "--port=9000")
    assert beside.code == 1
    assert beside.text.startswith(f"{once}---\n"), "and the others are observed"
    assert "page at port 9000" in beside.said


def test_a_container_that_had_to_be_named_has_to_be_named_again() -> None:
    once = run(RAY, "--container=ray-worker").text
    again = run(once, "--exporter-image=registry.example.com/exporter:2")
    assert (again.text, again.code) == ("", 1)
    assert "is not recognised: name it again with --container" in again.said
    named = run(once, "--container=ray-worker", "--exporter-image=registry.example.com/exporter:2")
    assert (named.code, named.text.count("exporter:2")) == (0, 2)


def test_another_pod_of_the_object_can_be_added_later() -> None:
    text = OBSERVABLE["leader_and_workers"]
    leader = run(text).text
    both = run(leader, "--container=worker")
    assert (both.code, len(observed(both.text))) == (0, 2)
    assert "stays observed as it was, since another container was asked for" in both.said
    assert run(both.text, "--remove").text == text


def test_another_container_of_the_pod_may_be_the_server() -> None:
    text = deployment(VLLM + container(name="second"))
    first, second = (run(text, f"--container={name}").text for name in ("vllm", "second"))
    assert run(first, "--container=second").text == second


def test_an_observer_that_was_not_added_by_this_command_is_not_touched() -> None:
    text = deployment(container("env: [{name: KVSCOPE_OBSERVER_DIR, value: /mine}]"))
    outcome = run(text)
    assert (outcome.text, outcome.code) == ("", 1)
    assert "it has an observer that this command did not add" in outcome.said
    service = MAPPING.replace("HF_TOKEN: ${HF_TOKEN:-}", "KVSCOPE_OBSERVER_DIR: /mine")
    outcome = run(service)
    assert (outcome.text, outcome.code) == ("", 1)
    assert "it has an observer that this command did not add" in outcome.said


@pytest.mark.parametrize("text", [MAPPING, LIST], ids=["mapping", "list"])
def test_services_are_updated_in_place(text: str) -> None:
    options = ("--exporter-image=registry.example.com/exporter:2", "--port=9000")
    again = run(run(text).text, *options)
    assert again.code == 0
    assert again.text == run(text, *options).text
    assert ": updated (image" in again.said


def test_the_image_of_an_update_is_that_of_both_containers() -> None:
    (pod,) = observed(run(run(SEVERAL_CONTAINERS, image="old/exporter:1").text).text)
    images = {added_to(pod, name)["image"] for name in ("kvscope", "kvscope-observer")}
    assert images == {IMAGE}
