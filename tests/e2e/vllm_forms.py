"""The forms of the queries in vLLM's generated boards, with all variables filled in."""

from collections.abc import Iterator
from typing import NamedTuple


class Ask(NamedTuple):
    """One query of a panel."""

    board: str
    panel: str
    expr: str
    why_not: str = ""
    """The reason why our page lacks it; empty: it does not."""


SERVER = 'job=~".+",instance=~".+"'
MODEL = 'job=~".+",model_name=~".+",instance=~".+"'
ENGINE = f'{MODEL},engine=~".+"'
WINDOW = "10s"
RANGE = "1m"


class Board:
    """The boards' forms of queries, over one choice of variables."""

    def __init__(self, selector: str) -> None:
        self._selector = selector

    def of(self, name: str, **labels: str) -> str:
        prefix = "" if name.startswith(("http_", "process_")) else "vllm:"
        matchers = [self._selector, *(f'{label}="{value}"' for label, value in labels.items())]
        return f"{prefix}{name}{{{','.join(matchers)}}}"

    def rate(self, name: str, *, by: str = "", window: str = WINDOW, **labels: str) -> str:
        grouping = f" by ({by})" if by else ""
        return f"sum{grouping} (rate({self.of(name, **labels)}[{window}]))"

    def quantile(self, share: float, name: str, by: str = "", window: str = WINDOW) -> str:
        grouping = f"le, {by}" if by else "le"
        rates = self.rate(f"{name}_bucket", by=grouping, window=window)
        return f"histogram_quantile({share}, {rates})"

    def mean(self, name: str, by: str = "") -> str:
        return over(self.rate(f"{name}_sum", by=by), self.rate(f"{name}_count", by=by))

    def levels(self, name: str) -> tuple[str, ...]:
        return (*(self.quantile(share, name) for share in (0.5, 0.95, 0.99)), self.mean(name))

    def shared_buckets(self, name: str, function: str, window: str) -> str:
        """Those bounds that all servers have, since vLLM's depend on the longest sequence."""
        every = f"{function}({self.of(f'{name}_bucket')}[{window}])"
        whole = self.of(f"{name}_bucket", le="+Inf")
        return (
            f"sum by (le) ({every}) and on (le) (count by (le) ({every}) == on () group_left () "
            f"count({function}({whole}[{window}])))"
        )


def over(part: str, whole: str) -> str:
    return f"{part} / ({whole} > 0)"


def asks(board: str, *panels: tuple[str, tuple[str, ...] | str, str]) -> Iterator[Ask]:
    for panel, expressions, why_not in panels:
        for expr in (expressions,) if isinstance(expressions, str) else expressions:
            yield Ask(board, panel, expr, why_not)
