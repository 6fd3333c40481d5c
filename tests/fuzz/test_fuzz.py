"""Every parser takes or refuses whatever comes, in bounded time: a short form of `make fuzz`."""

import pytest

from tools.fuzz.run import fuzz
from tools.fuzz.targets import TARGETS

INPUTS, MORE_INPUTS = 200, 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs", [INPUTS, pytest.param(MORE_INPUTS, marks=pytest.mark.nightly)], ids=["some", "many"]
)
@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_takes_or_refuses_whatever_comes(name: str, inputs: int) -> None:
    outcome = fuzz(TARGETS[name], inputs)
    assert not outcome.findings, "\n".join(outcome.findings)
    assert 0 < outcome.taken < outcome.inputs, "the inputs reach both sides of the parser"
