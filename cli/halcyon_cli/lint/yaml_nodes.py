"""Traversal of the nodes of a YAML document. It ends even if aliases refer to a node several times."""

from __future__ import annotations

from collections.abc import Iterator

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_MERGE = "tag:yaml.org,2002:merge"
NON_JSON_TAGS = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:binary"}
"""YAML types whose values can't be expressed in JSON, the format of the API server."""


def pairs(node: MappingNode) -> Iterator[tuple[Node, Node]]:
    """Yield the (key, value) pairs of an object: first its own, then those of the objects that `<<` merges into it."""
    own_pairs = [(key, value) for key, value in node.value if key.tag != _MERGE]
    yield from own_pairs
    names = {key.value for key, _ in own_pairs if isinstance(key, ScalarNode)}
    for _, value in (pair for pair in node.value if pair[0].tag == _MERGE):
        for merged in value.value if isinstance(value, SequenceNode) else (value,):
            if isinstance(merged, MappingNode):
                yield from ((key, inner) for key, inner in pairs(merged) if key.value not in names)


def duplicate_keys(node: Node, visited: set[int]) -> Iterator[tuple[int, str]]:
    """Yield (line, key) for each key that occurs twice in an object below a node."""
    for current in descendants(node, visited):
        if isinstance(current, MappingNode):
            seen = set()
            for key, _ in current.value:
                if isinstance(key, ScalarNode) and key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value if isinstance(key, ScalarNode) else None)


def non_json_scalars(node: Node, visited: set[int]) -> Iterator[ScalarNode]:
    """Yield the values below a node that YAML reads as a date or as bytes."""
    return (
        current
        for current in descendants(node, visited)
        if isinstance(current, ScalarNode) and current.tag in NON_JSON_TAGS
    )


def enclosed_alias(node: Node, outer: set[int], visited: set[int]) -> Node | None:
    """Return a node that contains an alias of itself; None if there is none."""
    if id(node) in outer:
        return node
    if id(node) in visited or isinstance(node, ScalarNode):
        return None
    visited.add(id(node))
    children = [child for pair in node.value for child in pair] if isinstance(node, MappingNode) else node.value
    aliases = (enclosed_alias(child, outer | {id(node)}, visited) for child in children)
    return next((alias for alias in aliases if alias is not None), None)


def descendants(node: Node, visited: set[int]) -> Iterator[Node]:
    """Yield a node and its descendants, each only once, even if aliases refer to it several times."""
    if id(node) in visited:
        return
    visited.add(id(node))
    yield node
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from descendants(key, visited)
            yield from descendants(value, visited)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            yield from descendants(value, visited)
