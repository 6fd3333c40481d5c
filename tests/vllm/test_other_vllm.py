"""A vLLM whose internals are not those that we know: it runs on, and we stay out and say so."""

import re

import pytest

from tests.support.pages import sample
from tests.vllm.conftest import Unobserved

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly),
    *(pytest.mark.slow, pytest.mark.timeout(900)),
]


def test_the_observer_stays_out_and_says_what_it_looked_for(unobserved: Unobserved) -> None:
    said = [line for line in unobserved.log.splitlines() if "kvscope: " in line]
    of_engine = [line for line in said if "EngineCore" in line]
    assert len(of_engine) == 1, said
    assert re.search(r"allocate_slots.*request", of_engine[0])
    assert "Traceback" not in unobserved.log


def test_its_pages_show_a_ready_server_whose_engine_is_not_observed(
    unobserved: Unobserved,
) -> None:
    for page in unobserved.pages:
        assert sample(page, "kvscope_server_state", state="ready") == 1
        stopped = re.findall(r'kvscope_observer_stopped{endpoint="([^"]+)".*} (\S+)', page)
        assert ("engine-0.sock", "1.0") in [(at.rpartition("/")[2], it) for at, it in stopped]
        assert "kvscope_kv_blocks{" not in page
    assert re.search(r"it cannot be switched: .*allocate_slots", unobserved.switched)
