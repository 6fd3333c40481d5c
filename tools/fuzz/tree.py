"""Mutations of a document's values: what is well-formed and still wrong."""

import random
from collections.abc import Callable

Node = object
MAX_DEPTH = 50
"""Of a document that is mutated by its values."""
MAX_COPIES = 64
"""Elements by which a list or an object may grow at once."""

STRANGE: tuple[Node, ...] = (
    *(None, True, False, 0, -1, 1, 2, 16, 255, 256, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(0.5, -0.0, 1e308, 5e-324, "", "a", "5", "\x00", "\u2028", "\U0001f600" * 9, "a" * 3000),
    *([], [0], [[]], ["a"], [None], {}, {"a": 1}, {"": None}, [0] * 40, ["", "a", 1]),
)


def is_deep(tree: Node) -> bool:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            value
            for node in level
            if isinstance(node, dict | list)
            for value in (node.values() if isinstance(node, dict) else node)
        ]
    return bool(level)


def mutated(tree: Node, rng: random.Random, other: Node) -> Node:
    """The tree with one to three changes; shares no list or object with the original.

    other: another document, whose parts may come in.
    """
    result = _copied(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        result = _changed(result, rng, other)
    return result


def _changed(tree: Node, rng: random.Random, other: Node) -> Node:
    """Descend to a random place and change what is there."""
    if isinstance(tree, dict) and tree and rng.random() < 0.85:
        key = rng.choice(list(tree))
        return {**tree, key: _changed(tree[key], rng, other)}
    if isinstance(tree, list) and tree and rng.random() < 0.85:
        index = rng.randrange(len(tree))
        return [*tree[:index], _changed(tree[index], rng, other), *tree[index + 1 :]]
    return rng.choice(_CHANGES)(tree, rng, other)


def _replaced(tree: Node, rng: random.Random, other: Node) -> Node:
    return _copied(rng.choice(STRANGE))


def _shifted(tree: Node, rng: random.Random, other: Node) -> Node:
    if isinstance(tree, bool) or not isinstance(tree, int | float):
        return _replaced(tree, rng, other)
    return rng.choice((tree + 1, tree - 1, -tree, tree * 2, tree * 10**6))


def _grown(tree: Node, rng: random.Random, other: Node) -> Node:
    count = rng.randint(1, MAX_COPIES)
    if isinstance(tree, list):
        return tree + [_copied(tree[-1]) if tree else 0] * count
    if isinstance(tree, dict):
        return tree | {f"key {number}": number for number in range(count)}
    if isinstance(tree, str | bytes):
        return tree * count
    return [tree] * count


def _shrunk(tree: Node, rng: random.Random, other: Node) -> Node:
    if isinstance(tree, list | str | bytes):
        return tree[: rng.randint(0, len(tree))]
    if isinstance(tree, dict) and tree:
        gone = rng.choice(list(tree))
        return {key: value for key, value in tree.items() if key != gone}
    return None


def _nested(tree: Node, rng: random.Random, other: Node) -> Node:
    for _ in range(rng.choice((1, 2, 20, 200))):
        tree = [tree] if rng.random() < 0.5 else {"a": tree}
    return tree


def _transplanted(tree: Node, rng: random.Random, other: Node) -> Node:
    part = other
    while isinstance(part, dict | list) and part and rng.random() < 0.7:
        part = rng.choice(list(part.values()) if isinstance(part, dict) else part)
    return _copied(part)


_CHANGES: tuple[Callable[[Node, random.Random, Node], Node], ...] = (
    *(_replaced, _replaced, _shifted, _grown, _shrunk, _nested, _transplanted),
)


def _copied(tree: Node) -> Node:
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_copied(value) for value in tree]
    return tree
