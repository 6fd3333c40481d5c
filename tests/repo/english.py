"""The prose of the checkout, by who reads it, and the house's own tics in it, as patterns."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.repo.checkout import project_files, relative

PRODUCT = ("alerts", "dashboards", "deploy", "engine", "exporter", "kvscope", "kvscope_events")
PRODUCT += ("monitoring",)
UNREAD = {"CHANGELOG.md", "docs/reference/commands.md", "docs/reference/metrics.md"}
UNREAD |= {f"docs/reference/{name}.md" for name in ("servers", "environment", "layout")}
UNREAD |= {"docs/reference/planned-models.md", "docs/internals/names.md"}
"""History, and pages that are generated from strings, which are read."""

TICS = {
    "Of …, as a beginning": re.compile(r"^\W*Of (?!course\b|\d)"),
    "anew": re.compile(r"\banew\b"),
    "is none": re.compile(r"\b(?:is|are|was|were|be) none\b(?! left)|\bnone but\b|\bNone runs\b"),
    "so many": re.compile(r"\b[Ss]o many\b"),
    "nobody, somebody, whoever": re.compile(r"\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever)\b"),
    "told, tells": re.compile(
        r"\b(?:told|tells|tellable|untold|foretells?|foretold)\b"
        r"|\b(?:do|does|did|must|may|that|which|servers|sources|events) (?:not )?tell\b"
    ),
    "is believed": re.compile(r"\b(?:is|are|be) (?:not )?believed\b"),
    "for want of": re.compile(r"\bwant of\b"),
    "becomes of": re.compile(r"\b(?:becomes?|became) of\b"),
    "is no thing": re.compile(
        r"(?<![Tt]here )\bis no (?!longer\b|more\b|less\b|other\b|better\b|one\b|block\b|free\b)"
    ),
    "another one": re.compile(r"\banother one\b"),
}
"""Substitutes: CONTRIBUTING.md, rule 11."""
_NOUNS = "server|replica|engine|process|method|pod|image|release|version|user|start"
DOCUMENT_TICS = {
    "of its own": re.compile(r"\bof (?:its|their|your|our) own\b"),
    "is heard, is silent": re.compile(r"\b(?:is|are|was|were|been|has|have|be) (?:heard|silent)\b"),
    "page, for metrics": re.compile(r"\b(?:its|own|server's|kvscope's|whose) (?:own )?pages?\b"),
    "figures": re.compile(r"\b[Ff]igures?\b"),
    "a second, for per second": re.compile(
        r"\b(?:tokens|requests|steps|blocks|calls|samples|bytes|events|times|MB) an? "
        r"(?:second|minute|hour|day|step|line|token)\b"
    ),
    "says which": re.compile(r"\b(?:says?|said) (?:so|which|what|how|where|whose|who|when|why)\b"),
    "that of": re.compile(r"\b(?:those|that) of\b"),
    "as of": re.compile(r"\bas (?:of|in|by|for|with) "),
    "has to": re.compile(r"\bha(?:s|ve|d) to\b"),
    "begins": re.compile(r"\b(?:[Bb]egins?|[Bb]egan)\b"),
    "has ended": re.compile(r"\b(?:has|have|had) ended\b|\bends\b"),
    "beside": re.compile(r"\bbeside\b"),
    "a vLLM": re.compile(
        rf"\b[Aa]n? (?:vLLM|SGLang|Prometheus|Slack)\b(?! (?:\d|or |(?:{_NOUNS})))"
    ),
    "semicolon chain": re.compile(r"[a-z)`]; [a-z`]"),
    "what is": re.compile(
        r"(?:^|[.:;] |\| )[Ww]hat (?:is|was|has|it|they|lies|only|rests) (?!different)"
    ),
    "the same as": re.compile(r"\| the same\b|[Tt]he same (?:of|for|as|with)\b"),
    "asks": re.compile(r"\b(?:is|are|was) asked\b|\basks\b"),
    "gives back": re.compile(r"\b(?:let go|takes? off|gives? .{0,20}back)\b"),
    "is well": re.compile(r"\bis well\b"),
    ", so that": re.compile(r", so that\b"),
    "mended": re.compile(r"\bmend(?:s|ed|ing)?\b"),
}
"""In the README and the documents; studies quote tests, generated pages follow their sources."""
QUESTION = re.compile(r"^(?:What|Who|Whom|Whose|How|Where|Which|Why)\b")
"""A docstring or comment that begins so is half a question; write a noun phrase or a sentence."""


class Passage(NamedTuple):
    """A string, a docstring, a comment, or a paragraph; spaces and line ends are single spaces."""

    place: str
    text: str
    for_users: bool


def passages() -> Iterator[Passage]:
    """All of the project but its changelog and what tests say to each other."""
    for path in project_files():
        place = relative(path)
        top = place.split("/")[0]
        if path.suffix == ".py" and top in (*PRODUCT, "tests", "benchmarks", "tools"):
            yield from _python(path, place, top in PRODUCT)
        elif path.suffix == ".md" and top != "tests" and place not in UNREAD:
            for number, paragraph in _paragraphs(path):
                yield Passage(f"{place}:{number}", paragraph, for_users=True)


def found(passage: Passage) -> list[str]:
    """Names of the tics in it, as often as they occur, without what is quoted as code."""
    text = re.sub(r"`[^`]*`", "``", passage.text)
    tables = [TICS, DOCUMENT_TICS] if _is_document(passage.place) else [TICS]
    tics = [tic for t in tables for tic, pattern in t.items() for _ in pattern.finditer(text)]
    if not passage.for_users and QUESTION.match(text):
        tics.append("What …, as a beginning")
    return tics


def _is_document(place: str) -> bool:
    return place.startswith(("README", "docs/")) and not place.startswith("docs/studies/")


def _python(path: Path, place: str, is_product: bool) -> Iterator[Passage]:
    """Strings of the product are for its users; docstrings and comments are for developers."""
    source = path.read_text()
    nodes = [*ast.walk(ast.parse(source))]
    inner = {id(part) for node in nodes for part in getattr(node, "values", ())}
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(part, "value", "") for part in node.values)
            text = "".join(part if isinstance(part, str) else "{}" for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        is_docstring = id(node) in docstrings
        if is_docstring or (is_product and id(node) not in inner):
            yield Passage(f"{place}:{node.lineno}", " ".join(text.split()), not is_docstring)
    for number, comment in _comments(source):
        yield Passage(f"{place}:{number}", comment, for_users=False)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments of successive lines are one."""
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        if block and number != last + 1:
            yield last, " ".join(block)
            block = []
        block.append(token.string.lstrip("#: "))
        last = number
    if block:
        yield last, " ".join(block)


def _paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """Paragraphs, items and rows of tables; what a fence encloses is code."""
    block: list[str] = []
    start = 1
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        is_code ^= line.lstrip().startswith(("```", "<!-- engine options", "<!-- end of the"))
        if is_code or line.startswith("```"):
            continue
        if not line.strip() or line.lstrip().startswith(("|", "- ", "* ", "#")):
            if block:
                yield start, " ".join(block)
            block, start = [], number
        if line.strip():
            block.append(line.strip())
    if block:
        yield start, " ".join(block)


if __name__ == "__main__":
    for passage in passages():
        for tic in found(passage):
            print(f"{passage.place}: {tic}: {passage.text[:300]}")
