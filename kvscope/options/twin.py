"""Options of `kvscope whatif` that replay a recording with other options of its server."""

from dataclasses import dataclass
from pathlib import Path

from kvscope_engine.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinOptions:
    """Options as given on the command line."""

    changes: list[str] | None = option(
        None,
        "Replay a recording's calls with another option of its server, such as max_num_seqs=128; "
        "several that change together are divided by commas. May be repeated; no curve is "
        "computed.",
        "OPTION=VALUE",
        flags=("--set",),
    )
    python: Path | None = option(
        None,
        "With --set: the Python that the server runs with, whose vLLM then decides each step. "
        "Default: kvscope's own scheduler, for pool, sequences and tokens of a step.",
        "FILE",
    )

    def __post_init__(self) -> None:
        if self.python is not None and not self.changes:
            raise ValueError("--python needs --set OPTION=VALUE")
