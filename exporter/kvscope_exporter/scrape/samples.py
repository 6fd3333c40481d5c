"""The samples of a page that a table needs; nothing else of the page is parsed.

Total: any text gives samples. If one line of a name cannot be parsed, the whole name is unusable,
since a sum without that line would be wrong. prometheus_client parses a line once; while it recurs
only its value is read.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from sys import intern
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as LibrarySample

from kvscope_exporter.scrape.value import Sample, Unusable

MAX_LINE = 8192
"""Characters; the library's time grows with the square of a line's length."""
MAX_SECONDS = 2.0
"""Seconds for one page. What was read until then is kept, so the next attempt gets further."""
MAX_WANTED = 1 << 15
"""Samples that a table needs on one page, each of about 0.5 KB: those of 250 engines."""
MAX_LABELS = 1 << 18
"""Labels of those samples together, eight for each: a line has room for a thousand."""
_LINES_A_LOOK, _WANTED_A_LOOK = 4096, 16
"""Lines between two looks at the clock."""
_LINE = re.compile(r"[^\n]+")
_A_SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})?\s+[-+0-9NI]")


class ParsedLabels(NamedTuple):
    """The part before a value, parsed."""

    labels: Mapping[str, str]
    identity: tuple[str, ...]
    """The name, then the labels in the order of their names."""


@dataclass(slots=True)
class Samples:
    """A page's samples for a table."""

    by_name: dict[str, list[Sample]] = field(default_factory=dict)
    spoiled: dict[str, str] = field(default_factory=dict)
    """Names that yield no number, and why."""
    num_malformed: int = 0
    """Lines that could not be used."""
    has_samples: bool = False
    """Whether any line is a sample, whether or not a table needs it."""
    is_cut: bool = False
    """Whether it is too much to read: the part that was read is not used."""
    num_engines: int = 1

    def samples(self, spellings: Sequence[str]) -> Sequence[Sample]:
        """A view of the page as that of one engine."""
        for spelling in spellings:
            if spelling in self.spoiled:
                raise Unusable(self.spoiled[spelling])
            found = self.by_name.get(spelling)
            if found:
                return found
        return ()


class SampleParser:
    """Keeps what it parsed of the last page, so the next one costs little."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(wanted)
        self._parsed: dict[str, ParsedLabels] = {}

    def parse(self, text: str, seconds: float = MAX_SECONDS) -> Samples:
        """Never raises. seconds: that are left for it, if that is less than MAX_SECONDS."""
        page = Samples()
        former, self._parsed = self._parsed, {}
        seen: set[tuple[str, ...]] = set()
        deadline = time.monotonic() + min(seconds, MAX_SECONDS)
        num_wanted = num_labels = 0
        for number, match in enumerate(_LINE.finditer(text)):  # a list of all could be large
            if number % _LINES_A_LOOK == 0 and time.monotonic() > deadline:
                page.is_cut = True
                break
            line = match[0].strip()
            name = _name(line)
            if name not in self._wanted:
                if not page.has_samples and name:
                    page.has_samples = _A_SAMPLE.match(line) is not None
                continue
            page.has_samples = True
            num_wanted += 1
            if num_wanted > MAX_WANTED:
                page.is_cut = True
                self._parsed = {}  # no later page of this kind could be read either
                break
            if num_wanted % _WANTED_A_LOOK == 0 and time.monotonic() > deadline:
                page.is_cut = True
                break
            read = self._line(line, name, former)
            if read is None:
                page.num_malformed += 1
                page.spoiled[name] = f"a sample of {name} cannot be parsed"
                continue
            parsed, value = read
            num_labels += len(parsed.labels)
            if num_labels > MAX_LABELS:
                page.is_cut = True
                self._parsed = {}
                break
            if parsed.identity in seen:
                page.num_malformed += 1
                page.spoiled[name] = f"{name} has a sample twice"
                continue
            seen.add(parsed.identity)
            page.by_name.setdefault(name, []).append((parsed.labels, value))
        return page

    def _line(
        self, line: str, name: str, former: Mapping[str, ParsedLabels]
    ) -> tuple[ParsedLabels, float] | None:
        if len(line) > MAX_LINE:
            return None
        has_exemplar = " # " in line
        # In the text format only a value and a time follow the last brace; an OpenMetrics exemplar
        # has braces of its own.
        cut = line.rfind("}") + 1 or len(name)
        head = line[:cut]
        parsed = None if has_exemplar else former.get(head)
        if parsed is None:
            sample = _parse(line)
            if sample is None or sample.name != name:
                return None
            # The same few words recur on every line.
            labels = {intern(key): intern(text) for key, text in sample.labels.items()}
            parsed = ParsedLabels(labels, (name, *chain.from_iterable(sorted(labels.items()))))
            if has_exemplar:
                return parsed, sample.value
        value = _value(line[cut:])
        if value is None:
            return None
        self._parsed[head] = parsed
        return parsed, value


def _name(line: str) -> str:
    """The name of a sample; empty for a comment or a blank line."""
    if not line or line.startswith("#"):
        return ""
    words = line.split("{", 1)[0].split(None, 1)
    return words[0] if words else ""


def _parse(line: str) -> LibrarySample | None:
    try:
        (sample,) = (s for family in text_string_to_metric_families(line) for s in family.samples)
        return sample._replace(value=float(sample.value))  # it can be a whole number of any size
    except Exception:  # its errors for broken lines are of many types, none of them ours
        return None


def _value(text: str) -> float | None:
    """A value and perhaps a time; not everything that Python accepts as a number, such as 1_000."""
    words = text.split()
    if len(words) not in (1, 2) or "_" in text or not text.isascii():
        return None
    try:
        value, *_ = map(float, words)
    except ValueError:
        return None
    return value
