"""Our encoders write what the library's write."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import exposition as library_text
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import exposition as library_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from kvscope_exporter.targets import exposition
from tests.exporter.page import make_exporter
from tests.exporter.scenario import play


class Page(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def registry_of(families: list[Family]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Page(families))
    return registry


def assert_equal(registry: CollectorRegistry) -> None:
    allow = library_openmetrics.ALLOWUTF8
    assert exposition.text(registry.collect()) == library_text.generate_latest(
        registry, escaping=allow
    )
    expected = library_openmetrics.generate_latest(registry, escaping=allow)
    assert exposition.openmetrics(registry.collect()) == expected


TEXTS = st.text(alphabet='aä€"\\\n {},=', max_size=8)
NAMES = st.text(alphabet="abc", min_size=1, max_size=6)
VALUES = (
    st.floats()
    | st.integers(-(2**60), 2**60)
    | st.booleans()
    | st.sampled_from([0.0, -0.0, 1e6, 999999.0, 1e7, 123456.5, 1234567.0, 1e16, 1e-5, 1e22])
)
EXEMPLARS = st.none() | st.builds(
    Exemplar,
    st.dictionaries(st.just("trace_id"), TEXTS, max_size=1),
    st.floats(allow_nan=False),
    st.none() | st.floats(0, 2e9),
)


@st.composite
def families(draw: st.DrawFn) -> list[Family]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["gauge", "counter", "histogram", "info"]))
        name = f"{draw(NAMES)}{number}"
        suffix = {"gauge": "", "counter": "_total", "histogram": "_bucket", "info": "_info"}[kind]
        family = Family(name, draw(TEXTS), kind, "")
        for _ in range(draw(st.integers(0, 4))):
            labels = draw(st.dictionaries(NAMES, TEXTS, max_size=3))
            exemplar = draw(EXEMPLARS) if kind == "histogram" else None
            sample = Sample(f"{name}{suffix}", labels, draw(VALUES), None, exemplar)
            family.samples.append(sample)
        made.append(family)
    return made


@given(made=families())
def test_any_page_is_what_the_library_writes(made: list[Family]) -> None:
    assert_equal(registry_of(made))


def test_units_are_written_in_openmetrics_alone() -> None:
    assert_equal(registry_of([Family("a_seconds", "A.", "gauge", "seconds")]))


def test_a_real_page_is_what_the_library_writes() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    still = list(exporter.registry.collect())  # what a page shows of itself would differ
    assert_equal(registry_of(still))
