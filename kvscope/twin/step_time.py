"""The duration of a step, fitted to the recorded ones: least squares without negative terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from kvscope.twin.replay import Row

KNOTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Numbers of decodes between which a further one takes the same time."""
TERMS = ("context", "prompt", "chunk", "attention", "admission")
"""Costs of a row's entries after the decodes."""
_CHUNK, _ADMISSION = TERMS.index("chunk"), TERMS.index("admission")
_ROUNDS = 6
_OUTLIER = 6 * 1.4826
"""Median deviations from which on a step is left out of the fit; it stays in the noise."""
_LEAST_SPREAD = 0.5
_TOGETHER = 0.9
_LEAST_SECONDS = 1e-5
_SLOWEST = 4.0
"""Times that a busy machine makes a step longer; what is beyond that is a pause, whose length has
nothing to do with the step's."""
_RIDGE = 1e-9


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A fit, with what is left of each recorded step."""

    constant: float
    terms: list[float]
    """Seconds by unit, as `TERMS` names them."""
    slopes: list[float]
    """Seconds by further decode, between two knots."""
    times: list[list[float]]
    """When each recorded step began, of those without a prompt and of those with one."""
    noise: list[list[tuple[float, float]]]
    """Recorded over fitted seconds of each of them, and seconds by which it took longer still."""
    gaps: list[float]
    r2: float
    error: float
    """Median relative error of a step."""
    together: float
    """Share of the chunks that were admissions too: the fit cannot tell the costs of such apart."""

    def document(self, *, chunks: bool | None = None) -> dict[str, Any]:
        """As `replay.Duration` takes it. chunks: charge what chunks and admissions cost together to
        the chunks, or to the admissions; None: as fitted."""
        terms = list(self.terms)
        if chunks is not None:
            both = terms[_CHUNK] + terms[_ADMISSION]
            terms[_CHUNK], terms[_ADMISSION] = (both, 0.0) if chunks else (0.0, both)
        decodes = [self.constant + _along(count, self.slopes) for count in range(KNOTS[-1] + 1)]
        return {
            "terms": terms,
            "decodes": decodes,
            "times": self.times,
            "noise": self.noise,
            "gaps": self.gaps,
        }

    @property
    def is_ambiguous(self) -> bool:
        """Whether the costs of chunks and of admissions could not be separated."""
        return self.together > _TOGETHER and self.terms[_CHUNK] + self.terms[_ADMISSION] > 0


def fitted(
    rows: Sequence[Row],
    seconds: Sequence[float],
    ends: Sequence[float],
    gaps: Sequence[float],
) -> StepTime:
    """Least squares of relative errors: a step of 8 ms counts as much as one of 400 ms.

    At least one row; seconds above 0, ends rise. gaps: seconds between steps of a busy engine.
    """
    terms = [_terms_of(row) for row in rows]
    both_kinds = [[i for i, row in enumerate(rows) if (row[2] > 0) == k] for k in (False, True)]
    kinds = [kind for kind in both_kinds if kind]
    weights = [1 / took for took in seconds]
    kept = [True] * len(rows)
    means = list(seconds)
    solution: list[float] = []
    for _ in range(_ROUNDS):
        chosen = [i for i, keep in enumerate(kept) if keep]
        solution = nonnegative(
            [[(at, value * weights[i]) for at, value in terms[i]] for i in chosen],
            [seconds[i] * weights[i] for i in chosen],
            len(TERMS) + len(KNOTS),
        )
        means = [max(_LEAST_SECONDS, sum(solution[at] * v for at, v in row)) for row in terms]
        ratios = [took / mean for took, mean in zip(seconds, means, strict=True)]
        for kind in kinds:  # steps without a prompt are far more, and far more alike
            middle = median(ratios[i] for i in kind)
            spread = max(_LEAST_SPREAD, _OUTLIER * median(abs(ratios[i] - middle) for i in kind))
            for i in kind:
                kept[i] = abs(ratios[i] - middle) <= spread
        weights = [1 / mean for mean in means]
    chunks = sum(row[3] for row in rows)
    both = sum(min(row[3], row[5]) for row in rows)
    average = sum(seconds) / len(seconds)
    rest = sum((took - mean) ** 2 for took, mean in zip(seconds, means, strict=True))
    whole = sum((took - average) ** 2 for took in seconds)
    return StepTime(
        constant=solution[0],
        terms=solution[1 : 1 + len(TERMS)],
        slopes=solution[1 + len(TERMS) :],
        times=[[ends[i] - seconds[i] for i in kind] for kind in both_kinds],
        noise=[_noise([seconds[i] for i in k], [means[i] for i in k]) for k in both_kinds],
        gaps=list(gaps) or [0.0],
        r2=1 - rest / whole if whole else 1.0,
        error=median(abs(took / mean - 1) for took, mean in zip(seconds, means, strict=True)),
        together=both / chunks if chunks else 0.0,
    )


def nonnegative(
    rows: Sequence[Sequence[tuple[int, float]]], wanted: Sequence[float], size: int
) -> list[float]:
    """Least squares of sparse rows, (column, value), without negative terms: a step costs no less
    for doing more. Columns without a value get 0."""
    squares = [[0.0] * size for _ in range(size)]
    sides = [0.0] * size
    for row, value in zip(rows, wanted, strict=True):
        for at, one in row:
            sides[at] += one * value
            line = squares[at]
            for other, two in row:
                line[other] += one * two
    kept = [at for at in range(size) if squares[at][at] > 0]
    while kept:
        found = _solved([[squares[a][b] for b in kept] for a in kept], [sides[a] for a in kept])
        if min(found) >= 0:
            result = [0.0] * size
            for at, value in zip(kept, found, strict=True):
                result[at] = value
            return result
        # By their share of a typical row, since the columns have different units.
        weight = [value * squares[at][at] ** 0.5 for at, value in zip(kept, found, strict=True)]
        kept.pop(weight.index(min(weight)))
    return [0.0] * size


def _terms_of(row: Row) -> list[tuple[int, float]]:
    """The columns of a row that are not 0: the constant, the terms, the decodes by knots."""
    found = [(0, 1.0)]
    found += [(at, value) for at, value in enumerate(row[1:], 1) if value]
    begin = 1 + len(TERMS)
    for at, (low, high) in enumerate(pairwise(KNOTS), begin):
        if row[0] <= low:
            break
        found.append((at, min(row[0], high) - low))
    return found


def _along(count: int, slopes: Sequence[float]) -> float:
    return sum(
        slope * min(max(0, count - low), high - low)
        for slope, (low, high) in zip(slopes, pairwise(KNOTS), strict=True)
    )


def _noise(seconds: Sequence[float], means: Sequence[float]) -> list[tuple[float, float]]:
    found = []
    for took, mean in zip(seconds, means, strict=True):
        ratio = min(_SLOWEST, took / mean)
        found.append((ratio, took - mean * ratio))
    return found


def _solved(matrix: list[list[float]], side: list[float]) -> list[float]:
    """Gauss's elimination of a symmetric matrix with a positive diagonal, scaled to ones."""
    size = len(side)
    scale = [matrix[i][i] ** 0.5 for i in range(size)]
    lines = [
        [matrix[i][j] / scale[i] / scale[j] + (_RIDGE if i == j else 0.0) for j in range(size)]
        + [side[i] / scale[i]]
        for i in range(size)
    ]
    for at in range(size):
        pivot = max(range(at, size), key=lambda i: abs(lines[i][at]))
        lines[at], lines[pivot] = lines[pivot], lines[at]
        for i in range(at + 1, size):
            factor = lines[i][at] / lines[at][at]
            if factor:
                lines[i] = [a - factor * b for a, b in zip(lines[i], lines[at], strict=True)]
    found = [0.0] * size
    for at in reversed(range(size)):
        rest = lines[at][size] - sum(lines[at][j] * found[j] for j in range(at + 1, size))
        found[at] = rest / lines[at][at]
    return [value / one for value, one in zip(found, scale, strict=True)]
