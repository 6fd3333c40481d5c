"""Every method of ours broken in turn, inside SGLang's real scheduler: it answers as without us."""

from pathlib import Path
from typing import Any

import pytest

from tests.sglang.drive import UNOBSERVED
from tests.sglang.driven import run_scenarios

pytestmark = [
    *(pytest.mark.sglang, pytest.mark.nightly, pytest.mark.weekly),
    pytest.mark.timeout(900),
]

PLAIN, TIERS, RETRACTED = "p16-overlap", "p16-hicache", "p16-retracted"
REQUESTS = {PLAIN: 10, RETRACTED: 30}
"""Enough that what is broken gets called."""
RUNNING = (
    "observer.Observer.pass_begins",
    *(f"steps.Steps.{method}" for method in ("queued", "begins", "extend_begins", "extended")),
    *(f"steps.Steps.{method}" for method in ("decoded", "row_freed", "completed")),
    *(f"pages.Pages.{method}" for method in ("release_begins", "publish_begins", "published")),
    *(f"pages.Pages.{method}" for method in ("inserted", "evict_begins", "evicted")),
    *(f"pages.Pages.{method}" for method in ("lock_begins", "locked")),
    *("pages.Pages.tree_reset@1", "pages.Pages.pool_cleared@1", "content.Content.drain"),
    *("observer.Observer.flush", "observer.Observer.idle@1", "outlet.Outlet.send"),
)
"""As `tests.sglang.drive.break_hook` reads them: what each wrapper calls, and what sends."""
IN_OFF = tuple(
    f"pages.Pages.evicted+{second}"
    for second in (
        *("patching.Patches.restore@4", "content.Content.detach@1", "observer.warn@1"),
        *("recorder.stop@1", "steps.Steps.forget@1", "observer.stopped@1"),
    )
)
AT_THE_START = (
    *("plugin._parallel@1", "plugin.refusal@1", "observer.methods@1"),
    *("patching.Patches.apply@3", "outlet.Outlet.start@1"),
)
ON_A_TIER = (
    *("pages.Pages.insert_begins", "pages.Pages.loaded@1"),
    *("pages.Pages.commit_begins@1", "pages.Pages.committed@1"),
)
IN_A_RETRACTION = (
    *("steps.Steps.retract_begins@1", "steps.Steps.retracted@1", "steps.preempted@1"),
)
SURVIVED = (
    *("publisher.encode_batch", "plugin._wanted@1"),
    *("patching.Patches.apply@1", "patching.Patches.restore@1"),
)
"""A batch is lost, pages have no names, or the start is not reported; counts go on."""
FAULTS = {
    **dict.fromkeys((*RUNNING, *IN_OFF, *AT_THE_START, *SURVIVED), PLAIN),
    **dict.fromkeys(ON_A_TIER, TIERS),
    **dict.fromkeys(IN_A_RETRACTION, RETRACTED),
}
"""With the scenario in which each is called."""
BY_FAULT = pytest.mark.parametrize("fault", list(FAULTS))


@pytest.fixture(scope="module")
def runs(
    sglang_python: Path, model: Path, environment: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """By fault; those without us by scenario."""
    runs = {}
    # The variable of forced retractions is read at the import; tiers have more to load with it.
    for together in ((PLAIN,), (RETRACTED, TIERS)):
        names = [f"{name}!{UNOBSERVED}" for name in together]
        names += [f"{name}!{fault}" for fault, name in FAULTS.items() if name in together]
        requests = REQUESTS[together[0]]
        for run in run_scenarios(sglang_python, model, environment, names, requests):
            runs[run["scenario"] if run["fault"] == UNOBSERVED else run["fault"]] = run
    return runs


@BY_FAULT
def test_sglang_answers_with_the_tokens_of_one_without_us(
    runs: dict[str, dict[str, Any]], fault: str
) -> None:
    alone = runs[FAULTS[fault]]
    assert alone["wrapped"] == [0, 0]
    assert alone["replies"]["finished"] >= 6
    assert sum(map(len, alone["tokens"].values())) > 200
    assert runs[fault]["replies"] == alone["replies"]
    assert runs[fault]["tokens"] == alone["tokens"]


@BY_FAULT
def test_the_observer_ends_with_one_line_and_leaves_nothing(
    runs: dict[str, dict[str, Any]], fault: str
) -> None:
    """Also the names, which the tree goes on to report, do not pile up."""
    run = runs[fault]
    assert run["live"] == (fault in SURVIVED)
    assert run["wrapped"][0] > 10 or fault in AT_THE_START
    assert len(run["said"]) <= 1
    if fault not in IN_OFF and fault != "publisher.encode_batch":
        assert len(run["said"]) == 1
    if fault in AT_THE_START:
        assert run["said"] == [f"kvscope: off: {run['heard']}. SGLang runs on, unobserved."]
    assert run["left_over"] < 50
    if not run["live"] and "Patches.restore" not in fault:
        assert run["wrapped"][1] == 0
