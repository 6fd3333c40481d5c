"""Runs every property test with many seeds: `python -m tools.checks.seeds [--seeds N] [PATH...]`.

A test that passes depends on luck if another seed can make it fail. Each seed has the test's own
number of examples where they take a moment, and fewer where they take long. Prints how many runs
passed, and the seeds of those that failed. Options that it does not know are pytest's.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import pytest

QUICK_SECONDS = 0.05
"""A run of all examples that takes longer is made with fewer."""
LEAST_EXAMPLES = 5


class Seeds:
    """A plugin of pytest that calls each property test once for each seed."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self.tests = self.runs = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Function) -> Iterator[None]:
        from hypothesis import core  # pytest rewrites it first

        core.global_force_seed = 1  # type: ignore[assignment]
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.tests += 1
        self.runs += 1
        call = _call_of(item, min(1.0, QUICK_SECONDS / took))
        for seed in range(2, self._seeds + 1):
            core.global_force_seed = seed  # type: ignore[assignment]
            try:
                call()
            except Exception as error:
                error.add_note(f"with --hypothesis-seed={seed}")
                raise
            self.runs += 1


def _call_of(item: pytest.Function, share: float) -> Callable[[], object]:
    """Runs the function, or the state machine, with this share of its examples."""
    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test

    def fewer(given: settings) -> settings:
        examples = min(given.max_examples, max(LEAST_EXAMPLES, int(given.max_examples * share)))
        return settings(given, max_examples=examples)

    machine = getattr(item.obj, "_hypothesis_state_machine_class", None)
    if machine is not None:
        assert item.cls is not None
        return lambda: run_state_machine_as_test(machine, settings=fewer(item.cls.settings))
    name = "_hypothesis_internal_use_settings"
    setattr(item.obj, name, fewer(getattr(item.obj, name)))
    names = item._fixtureinfo.argnames
    return lambda: item.obj(**{name: item.funcargs[name] for name in names})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    options, rest = parser.parse_known_args()
    plugin = Seeds(options.seeds)
    status = pytest.main(
        ["-q", "-m", "hypothesis and not gpu", "-p", "no:cacheprovider", "--timeout=3600", *rest],
        plugins=[plugin],
    )
    print(f"{plugin.tests} property tests, {plugin.runs} runs with {options.seeds} seeds each")
    sys.exit(status)


if __name__ == "__main__":
    main()
