"""`--compat`: metric names of other servers that a page serves as well."""

from kvscope_exporter.catalogue import COMPAT_SETS, DEFAULT_COMPAT

DEFAULT_SETS = ",".join(sorted(DEFAULT_COMPAT))
"""The default for our own engine, whose page is the only one."""
NO_SETS = "none"
"""The default for a page besides a server's own: a sum over both would count everything twice.
"""
_KNOWN = ", ".join(sorted(COMPAT_SETS))

HELP = f"Other servers' metric names to serve as well, separated by commas: {_KNOWN}; or none."


def parse_compat(text: str) -> frozenset[str]:
    """`vllm,vllm-legacy` → a set; `none` is the empty one. Raises ValueError."""
    names = frozenset(part.strip() for part in text.split(",")) - {""}
    if names == {NO_SETS}:
        return frozenset()
    unknown = sorted(names - COMPAT_SETS)
    if unknown:
        raise ValueError(
            f"--compat {text!r}: {unknown[0]!r} is unknown; expected {_KNOWN}, or none"
        )
    return names
