"""Packages that only some features need, and the extra of the distribution that installs them."""

from importlib.util import find_spec

_PACKAGES = {
    "basic-auth": ("bcrypt",),
    "engine": ("torch", "transformers"),
    "export": ("duckdb", "perfetto"),
    "kv-events": ("zmq",),
    "otlp": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "plot": ("matplotlib",),
    "top": ("textual",),
}
"""Modules to look for, by extra."""


def lacking(feature: str, extra: str) -> str:
    """One sentence that says what to install before the feature can be used; empty: nothing.

    feature: an option, or words that a sentence begins with.
    """
    missing = [package for package in _PACKAGES[extra] if not _is_installed(package)]
    if not missing:
        return ""
    return f"{feature} needs {missing[0]}: pip install '.[{extra}]' in a checkout of kvscope"


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
