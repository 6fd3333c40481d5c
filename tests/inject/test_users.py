"""Observer and sidecar run as the server's user, and are admitted where the server is."""

from typing import Any

import pytest

from tests.inject.odd_inputs import SHELL_FORM
from tests.inject.run import loaded, run
from tests.inject.test_left_alone import VLLM, container, deployment

NON_ROOT = "{runAsNonRoot: true}"
ROOT_ALLOWED = "{runAsNonRoot: false}"


def pod(of_pod: str, own: str) -> str:
    """A server whose pod and container have these security contexts."""
    server = VLLM if own == "{}" else container(f"securityContext: {own}")
    return deployment(server, "" if of_pod == "{}" else f"      securityContext: {of_pod}\n")


def contexts(text: str) -> list[dict[str, Any]]:
    """The security contexts of our containers, each with what it takes from the pod's."""
    (content,) = loaded(text)
    spec = content["spec"]["template"]["spec"]
    return [
        {**spec.get("securityContext", {}), **one["securityContext"]}
        for one in [*spec.get("initContainers", []), *spec["containers"]]
        if one["name"].startswith("kvscope")
    ]


@pytest.mark.parametrize("sidecar", [(), ("--ordinary-sidecar",)], ids=["native", "ordinary"])
@pytest.mark.parametrize(
    ("of_pod", "own", "user"),
    [
        ("{runAsUser: 2000}", NON_ROOT, ()),
        ("{runAsUser: 2000}", "{}", ()),
        ("{runAsUser: 2000, runAsNonRoot: true}", "{}", ()),
        (NON_ROOT, "{}", ("--user=2000",)),
        ("{}", NON_ROOT, ("--user=2000",)),
        ("{}", NON_ROOT, ("--user=assigned",)),
        (NON_ROOT, "{}", ("--user=assigned",)),
        (NON_ROOT, "{runAsUser: 2000}", ()),
        ("{}", "{runAsUser: 2000, runAsNonRoot: true}", ()),
    ],
)
def test_our_containers_are_admitted_where_no_root_is(
    of_pod: str, own: str, user: tuple[str, ...], sidecar: tuple[str, ...]
) -> None:
    text = pod(of_pod, own)
    outcome = run(text, *user, *sidecar)
    assert outcome.code == 0, outcome.said
    assert [one["runAsNonRoot"] for one in contexts(outcome.text)] == [True, True]
    assert {one.get("runAsUser") for one in contexts(outcome.text)} <= {2000, None}
    assert run(outcome.text, "--remove").text == text


@pytest.mark.parametrize(("of_pod", "own"), [(NON_ROOT, "{}"), ("{}", NON_ROOT)])
@pytest.mark.parametrize("options", [(), ("--user=0",)])
def test_a_server_that_must_not_be_root_is_not_taken_for_root(
    of_pod: str, own: str, options: tuple[str, ...]
) -> None:
    text = pod(of_pod, own)
    outcome = run(text, *options)
    assert (outcome.text, outcome.code) == ("", 1)
    assert "must not run as root (runAsNonRoot)" in outcome.said
    assert "--user UID" in outcome.said


def test_a_server_that_may_be_root_in_a_pod_that_may_not_has_containers_that_may() -> None:
    text = pod(NON_ROOT, ROOT_ALLOWED)
    outcome = run(text)
    assert [(one["runAsUser"], one["runAsNonRoot"]) for one in contexts(outcome.text)] == 2 * [
        (0, False)
    ]
    assert run(outcome.text, "--remove").text == text


def test_a_cluster_may_assign_the_user() -> None:
    outcome = run(SHELL_FORM.replace("llm-d-cuda", "ours"), "--user=assigned")
    assert outcome.code == 0
    assert "runAsUser" not in outcome.text
    assert "runAsNonRoot" not in outcome.text


def test_the_pods_own_user_holds_for_our_containers() -> None:
    text = deployment(VLLM, "      securityContext: {runAsUser: 9}\n")
    assert run(text).text.count("runAsUser") == 1
    own = container("securityContext: {runAsUser: 8}")
    inner = deployment(own, "      securityContext: {runAsUser: 9}\n")
    assert run(inner).text.count("runAsUser: 8") == 3
