"""Manifests of any layout: what is added comes off again, and nothing else changes."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvscope.inject.kubernetes import Wish
from kvscope.inject.report import Report
from kvscope.inject.stream import changed
from tests.inject.odd_inputs import OBSERVABLE
from tests.inject.test_compose_files import NAMED as NAMED_FILES

WORDS = st.text(st.sampled_from("ab:#-' \"{},[]*&!|>%@`~\\é\n"), max_size=8)
SCALARS = st.one_of(WORDS, st.integers(0, 9), st.booleans(), st.none())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


def some(**values: Any) -> Any:
    """A mapping with any of the keys, in any order."""
    optional = st.fixed_dictionaries({}, optional=values)
    return optional.flatmap(lambda made: st.permutations(list(made.items())).map(dict))


def joined(*parts: Any) -> Any:
    """One mapping of the entries of all, in any order."""
    items = st.tuples(*parts).map(lambda made: [item for part in made for item in part.items()])
    return items.flatmap(st.permutations).map(dict)


NAMED = st.builds(lambda name: {"name": f"x{name}"}, st.integers(0, 9))
SERVER = joined(
    st.just({"name": "vllm", "image": "vllm/vllm-openai:v0.32.0"}),
    some(
        args=st.lists(WORDS, max_size=2),
        env=st.lists(joined(NAMED, some(value=WORDS)), max_size=2),
        volumeMounts=st.lists(NAMED, max_size=2),
        resources=ANYTHING,
    ),
)
OTHER = joined(NAMED, some(image=WORDS, command=st.lists(WORDS, max_size=2)))
SPEC = joined(
    st.tuples(st.lists(OTHER, max_size=2), SERVER).map(
        lambda both: {"containers": [*both[0], both[1]]}
    ),
    some(
        volumes=st.lists(NAMED, max_size=2),
        initContainers=st.lists(OTHER, max_size=2),
        nodeSelector=ANYTHING,
    ),
)
TEMPLATE = joined(
    SPEC.map(lambda spec: {"spec": spec}),
    some(metadata=some(labels=st.dictionaries(WORDS, WORDS, max_size=2), annotations=ANYTHING)),
)
MANIFEST = TEMPLATE.map(
    lambda template: {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
)


class Indented(yaml.SafeDumper):  # type: ignore[misc]
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


@given(
    manifest=MANIFEST,
    dumper=st.sampled_from([yaml.SafeDumper, Indented]),
    flow=st.sampled_from([True, False, None]),
    indent=st.sampled_from([2, 4]),
    width=st.sampled_from([20, 80]),
    line_break=st.sampled_from(["\n", "\r\n"]),
    comment=st.integers(0, 40),
    ended=st.booleans(),
    is_native=st.booleans(),
)
def test_what_is_added_comes_off_again(
    manifest: Any,
    dumper: Any,
    flow: bool | None,
    indent: int,
    width: int,
    line_break: str,
    comment: int,
    ended: bool,
    is_native: bool,
) -> None:
    text = yaml.dump(
        manifest,
        Dumper=dumper,
        default_flow_style=flow,
        indent=indent,
        width=width,
        line_break=line_break,
        allow_unicode=True,
        sort_keys=False,
    )
    if not ended:
        text = text.rstrip("\r\n")
    if flow is False and comment < len(text.splitlines()) and '"' not in text and "'" not in text:
        lines = text.split(line_break)
        lines.insert(comment, "    # a comment")
        text = line_break.join(lines)
    try:
        before = yaml.safe_load(text)
    except yaml.YAMLError:  # the comment is in the middle of a scalar
        return
    report, wish = Report(), Wish(is_native=is_native)
    observed = changed(text, wish, report, is_removal=False)
    if report.refused:
        assert observed == text
        return
    assert report.done == 1
    _contains(yaml.safe_load(observed), before)
    assert changed(observed, wish, Report(), is_removal=False) == observed
    assert changed(observed, Wish(), Report(), is_removal=True) == text


def _contains(after: Any, before: Any) -> None:
    """All that was there is there, in its order."""
    if isinstance(before, dict):
        assert [key for key in after if key in before] == list(before)
        for key, value in before.items():
            _contains(after[key], value)
    elif isinstance(before, list):
        for new, old in zip(after, before, strict=False):
            _contains(new, old)
        assert len(after) >= len(before)
    else:
        assert after == before


def places(content: Any) -> list[tuple[Any, Any]]:
    """Every holder of a value and its key or index."""
    found: list[tuple[Any, Any]] = []
    if isinstance(content, (dict, list)):
        for key in content if isinstance(content, dict) else range(len(content)):
            found += [(content, key), *places(content[key])]
    return found


@given(
    text=st.sampled_from([*OBSERVABLE.values(), *NAMED_FILES.values()]),
    number=st.integers(0, 500),
    value=ANYTHING,
)
def test_no_value_at_any_place_is_an_error_of_ours(text: str, number: int, value: Any) -> None:
    content = list(yaml.safe_load_all(text.replace("\t", " ")))
    spots = places(content)
    holder, key = spots[number % len(spots)]
    holder[key] = value
    broken = yaml.dump_all(content, sort_keys=False)
    observed = changed(broken, Wish(), Report(), is_removal=False)
    assert changed(observed, Wish(), Report(), is_removal=True) == broken
