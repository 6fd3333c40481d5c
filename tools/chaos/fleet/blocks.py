"""Series of the past as blocks of Prometheus' own storage, by promtool."""

import subprocess
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import numpy as np

from tools.chaos.fleet.recording import Floats, Labels

Series = tuple[str, Labels, Floats]
"""Name, labels, and a sample for each time or NaN."""
BLOCK_SECONDS = 7200
"""Blocks begin at multiples of it; promtool reads its whole input once for each."""


def write_blocks(series: Iterable[Series], times: Floats, data: Path, tool: str) -> int:
    """Add the samples to the storage in `data`; returns how many. times: Unix, in seconds."""
    spans = list(_spans(times))
    paths = [data.with_name(f"part-{number}.om") for number in range(len(spans))]
    stamps = [f" {moment:.3f}\n" for moment in times]
    files: list[TextIO] = [path.open("w") for path in paths]
    try:
        count = sum(_write(one, stamps, spans, files) for one in series)
        for file in files:
            file.write("# EOF\n")
    finally:
        for file in files:
            file.close()
    for path in paths:
        command = [tool, "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
        command += [str(path), str(data)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{path}: {done.stdout}{done.stderr}")
        path.unlink()
    return count


def _spans(times: Floats) -> Iterator[slice]:
    """The samples of each block."""
    numbers = times // BLOCK_SECONDS
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(times)]
    for start, stop in pairwise(cuts):
        yield slice(start, stop)


def _write(one: Series, stamps: list[str], spans: list[slice], files: list[TextIO]) -> int:
    name, labels, values = one
    head = name + "{" + ",".join(f'{label}="{text}"' for label, text in labels) + "} "
    numbers = values.tolist()
    count = 0
    for span, file in zip(spans, files, strict=True):
        lines = [
            f"{head}{number:.10g}{stamp}"
            for number, stamp in zip(numbers[span], stamps[span], strict=True)
            if number == number
        ]
        file.write("".join(lines))
        count += len(lines)
    return count
