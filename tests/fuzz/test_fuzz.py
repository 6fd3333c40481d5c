"""Every parser accepts or refuses whatever comes, in bounded time and memory.

What Hypothesis finds, it prints, and keeps in .hypothesis/ until it no longer fails. Add it to the
target's folder in tools/fuzz/corpus/ with the fix. `make fuzz` feeds more inputs, other ones each
time.
"""

import os
from collections.abc import Iterator
from operator import attrgetter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.fuzz.inputs import inputs
from tools.fuzz.run import Feeder, feeding
from tools.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow
INPUTS = (
    settings.default.max_examples
    if "KVSCOPE_FUZZ_INPUTS" in os.environ
    else 4 * settings.default.max_examples  # a parser takes less time than other tests' examples
)


@pytest.fixture(scope="module", params=TARGETS, ids=attrgetter("name"))
def parser(request: pytest.FixtureRequest) -> Iterator[Feeder]:
    with feeding(request.param) as feeder:
        yield feeder


def test_kept_inputs_are_accepted_or_refused(parser: Feeder) -> None:
    for content in parser.target.corpus().values():
        parser.feed(content)


@settings(
    max_examples=INPUTS,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_parser_accepts_or_refuses_whatever_comes(parser: Feeder, data: st.DataObject) -> None:
    parser.feed(data.draw(inputs(parser.target), "input"))
