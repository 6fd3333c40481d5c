"""Results of a measurement on a GPU: figures so far, and pages for another machine."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.on_a_gpu.nvml import Memory, beside
from benchmarks.on_a_gpu.pages import Page, read, with_moments
from benchmarks.on_a_gpu.report import Figure, Parts

PAGE = Page(
    time=1000.5,
    job="kvscope",
    seconds=0.01,
    page='# HELP a Text.\n# TYPE a counter\na_total 3\nb{cause="x y"} 2.5\n',
)


def test_a_part_that_fails_leaves_the_others_and_what_it_had_found(tmp_path: Path) -> None:
    path = tmp_path / "section.json"
    parts = Parts(path)

    def fails() -> Iterator[list[Figure]]:
        yield [Figure("before", 1.0, "")]
        raise ValueError("broken")

    parts.measure("first", fails)
    parts.measure("second", lambda: [[Figure("after", 2.0, "")]])
    assert [figure["name"] for figure in json.loads(path.read_text())] == ["before", "after"]
    with pytest.raises(SystemExit, match="failed: first"):
        parts.end()


def test_pages_are_read_up_to_where_their_writer_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "pages.gz"
    with gzip.open(path, "wt") as file:
        for number in range(3):
            file.write(json.dumps(PAGE._replace(time=float(number))._asdict()) + "\n")
            file.flush()
    path.write_bytes(path.read_bytes()[:-25])
    found = list(read(path))
    assert found[:2] == [PAGE._replace(time=0.0), PAGE._replace(time=1.0)]


def test_samples_get_the_job_the_instance_and_the_moment_of_their_page() -> None:
    labels = 'job="kvscope",instance="gpu-host:8010"'
    assert list(with_moments([PAGE])) == [
        f"up{{{labels}}} 1 1000.500",
        f"scrape_duration_seconds{{{labels}}} 0.010000 1000.500",
        f"a_total{{{labels}}} 3 1000.500",
        f'b{{{labels},cause="x y"}} 2.5 1000.500',
        "# EOF",
    ]


def test_components_are_held_to_the_card_and_to_its_processes() -> None:
    parts = {"free": 60, "driver_reserved": 5, "weights": 20, "kv_pool": 10, "unattributed": 5}
    page = "".join(
        f'kvscope_gpu_memory_component_bytes{{component="{name}"}} {size}\n'
        for name, size in parts.items()
    )
    nvml = Memory(total=100, reserved=5, used=35, free=60, processes=30)
    assert [figure.value for figure in beside(page, nvml)] == [0.0, 0.0, 0.05, 0.0]
    lying = nvml._replace(total=200, processes=90)
    assert [figure.met for figure in beside(page, lying)] == [False, True, False, False]
    with pytest.raises(LookupError, match="no components"):
        beside("up 1\n", nvml)
