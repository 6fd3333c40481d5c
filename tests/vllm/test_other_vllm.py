"""A vLLM whose internals are not those that we know: it runs on, and we stay out and say so."""

import re

import pytest

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
    assert "engine-0.sock" not in unobserved.sockets
    assert "Traceback" not in unobserved.log
