"""What a JSON Schema says of one value, as far as it decides how a value without quotes is read.

Only keywords that choose among types and constants are looked at; what limits a value within its type (``pattern``,
``minimum``, ``format``) decides nothing here. What cannot be resolved admits everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_DEEPEST = 16
"""References and combinations inside one another; deeper ones admit everything, as do circles of references."""
_ALIASES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}
"""Names that are no JSON Schema, from tools whose types were taken from Python."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (Mapping,),
    "array": (list,),
}
_SOME_TEXT = "\ue000any\ue001"
"""A string that no constant of a schema is."""


class Schema:
    """A schema, and the document that its references are resolved in."""

    def __init__(self, node: Any = True, root: Any = None) -> None:
        self._node = node
        self._root = node if root is None else root

    def admits(self, value: Any) -> bool:
        """Whether the schema admits a value: None, a bool, a number, a string, a list or a mapping."""
        return _admits(self._node, value, self._root, 0, loose=False)

    @property
    def any_text(self) -> bool:
        """Whether every string is admitted."""
        return self.admits(_SOME_TEXT)

    @property
    def names_null(self) -> bool:
        """Whether null is admitted by name, not just because nothing is said of types."""
        return self.admits(None) and _names_null(self._node, self._root, 0)

    @property
    def some_text(self) -> bool:
        """Whether any string is admitted at all."""
        return _admits(self._node, _SOME_TEXT, self._root, 0, loose=True)

    def property(self, name: str) -> Schema:
        """The schema of an object's entry; of one that is not declared: anything."""
        found = list(_entries(self._node, name, self._root, 0))
        return Schema(found[0] if len(found) == 1 else {"allOf": found} if found else True, self._root)

    def item(self) -> Schema:
        """The schema of a list's items."""
        found = [node["items"] for node in _conjuncts(self._node, self._root, 0) if "items" in node]
        found = [items for items in found if isinstance(items, Mapping)]
        return Schema({"allOf": found} if found else True, self._root)


ANYTHING = Schema()


def _admits(node: Any, value: Any, root: Any, depth: int, *, loose: bool) -> bool:
    """With ``loose``, constants stand for all values of their type."""
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return node is not False
    if node.get("nullable") is True and value is None:
        return True

    def admits(other: Any) -> bool:
        return _admits(other, value, root, depth + 1, loose=loose)

    if "$ref" in node and not admits(_resolved(node["$ref"], root)):
        return False
    if "const" in node and not _equal(node["const"], value, loose=loose):
        return False
    if isinstance(node.get("enum"), list) and not any(_equal(one, value, loose=loose) for one in node["enum"]):
        return False
    if not _is_of(node.get("type"), value):
        return False
    alternatives = [node[key] for key in ("anyOf", "oneOf") if isinstance(node.get(key), list) and node[key]]
    if not all(any(map(admits, some)) for some in alternatives):
        return False
    every = node.get("allOf")
    if isinstance(every, list) and not all(map(admits, every)):
        return False
    excluded = node.get("not")
    if isinstance(excluded, Mapping) and excluded and excluded.keys() <= {"type", "const", "enum"}:
        return not _admits(excluded, value, root, depth + 1, loose=False)
    return True


def _names_null(node: Any, root: Any, depth: int) -> bool:
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return False
    types = node.get("type")
    if node.get("nullable") is True or "null" in (types if isinstance(types, list) else [types]):
        return True
    if ("const" in node and node["const"] is None) or (isinstance(node.get("enum"), list) and None in node["enum"]):
        return True
    parts = [part for key in ("anyOf", "oneOf", "allOf") if isinstance(node.get(key), list) for part in node[key]]
    if "$ref" in node:
        parts.append(_resolved(node["$ref"], root))
    return any(_names_null(part, root, depth + 1) for part in parts)


def _is_of(types: Any, value: Any) -> bool:
    if types is None:
        return True
    for name in types if isinstance(types, list) else [types]:
        kinds = _TYPES.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
        if kinds is None:
            return True  # a type that nobody knows
        if isinstance(value, bool):
            if bool in kinds:
                return True
        elif isinstance(value, kinds) or (int in kinds and isinstance(value, float) and value.is_integer()):
            return True
    return False


def _equal(constant: Any, value: Any, *, loose: bool) -> bool:
    if isinstance(constant, bool) or isinstance(value, bool) or loose:
        return type(constant) is type(value) and (loose or constant == value)
    return bool(constant == value)


def _resolved(reference: Any, root: Any) -> Any:
    """What a reference inside the document points to (RFC 6901); True, which admits everything, for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return True
    node = root
    for key in reference.split("/")[1:]:
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return True
    return node


def _conjuncts(node: Any, root: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The schema and all that must hold beside it; of alternatives, each."""
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return
    yield node
    parts = [part for key in ("allOf", "anyOf", "oneOf") if isinstance(node.get(key), list) for part in node[key]]
    if "$ref" in node:
        parts.append(_resolved(node["$ref"], root))
    for part in parts:
        yield from _conjuncts(part, root, depth + 1)


def _entries(node: Any, name: str, root: Any, depth: int) -> Iterator[Any]:
    """What is said of an object's entry, all of which holds; alternatives are one schema of several."""
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return
    declared, others = node.get("properties"), node.get("additionalProperties")
    if isinstance(declared, Mapping) and name in declared:
        yield declared[name]
    elif isinstance(others, Mapping):
        yield others
    if "$ref" in node:
        yield from _entries(_resolved(node["$ref"], root), name, root, depth + 1)
    if isinstance(node.get("allOf"), list):
        for part in node["allOf"]:
            yield from _entries(part, name, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(node.get(key), list):
            some = [{"allOf": found} for part in node[key] if (found := list(_entries(part, name, root, depth + 1)))]
            if some:
                yield {"anyOf": some}
