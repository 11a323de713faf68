"""The schema in words: what a value may be, which keys exist. Error messages and the table of keys share it.

Works on the JSON Schema of `Config`, so nothing is said twice: bounds, choices and texts are those of the
declaration. `x-type` and `x-default` in a declaration replace the words that would be made up here.
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from distxcept.config.base import MAX_INT
from distxcept.config.schema import Config
from distxcept.config.yaml_text import Path, dotted

Node = dict[str, Any]

_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
_TYPES = {"integer": "an integer", "number": "a number", "string": "text", "boolean": "true or false"}


@cache
def json_schema() -> Node:
    return Config.model_json_schema()


def resolve(node: Node) -> Node:
    """Follows a reference; what stands beside it (description, default) wins."""
    if "$ref" not in node:
        return node
    target = json_schema()["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def branches(node: Node) -> list[Node]:
    """The alternatives of a value, without null; one for a plain value."""
    node = resolve(node)
    if "anyOf" not in node:
        return [node]
    return [resolve(branch) for branch in node["anyOf"] if branch.get("type") != "null"]


def is_nullable(node: Node) -> bool:
    return any(branch.get("type") == "null" for branch in resolve(node).get("anyOf", ()))


def tagged(node: Node) -> dict[str, Node]:
    """The branches of a value that is told apart by its `kind`; empty for any other."""
    for branch in branches(node):
        if "discriminator" in branch:
            mapping = branch["discriminator"]["mapping"]
            return {tag: resolve({"$ref": reference}) for tag, reference in mapping.items()}
    return {}


def children(node: Node, tag: str | None = None) -> dict[str, Node]:
    """The keys below a value; of one kind, or of all kinds if `tag` is none of them."""
    kinds = tagged(node)
    if kinds:
        chosen = [kinds[tag]] if tag in kinds else kinds.values()
        return {key: child for branch in chosen for key, child in branch["properties"].items()}
    return {key: child for branch in branches(node) for key, child in branch.get("properties", {}).items()}


def is_open_mapping(node: Node) -> bool:
    return any(isinstance(branch.get("additionalProperties"), dict) for branch in branches(node))


def expected(node: Node) -> str:
    """What a value may be, in words: `auto or an integer ≥ 1`."""
    if kinds := tagged(node):
        words = [f"a mapping of kind {' | '.join(kinds)}"]
    else:
        words = [word for branch in branches(node) for word in _expected_branch(branch)]
    return join_or([*words, "null"] if is_nullable(node) else words)


def _expected_branch(node: Node) -> list[str]:
    if "x-type" in node:
        return [node["x-type"]]
    if "const" in node or "enum" in node:
        return [str(value) for value in node.get("enum", [node.get("const")])]
    if node["type"] == "array":
        return [_expected_list(node)]
    if node["type"] == "object":
        values = node.get("additionalProperties")
        return [f"a mapping to {expected(values)}" if values else "a mapping"]
    # The bound of every integer need not be said with each.
    bounds = [f"{sign} {node[key]}" for key, sign in _BOUNDS if key in node and node[key] != MAX_INT]
    return [f"{_TYPES[node['type']]} {' and '.join(bounds)}".strip()]


def _expected_list(node: Node) -> str:
    items = node.get("prefixItems") or [node["items"]]
    count = f"{len(items)} values" if "prefixItems" in node else "values"
    return f"a list of {count}, each {expected(items[0])}"


def join_or(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


@dataclass(frozen=True)
class Key:
    """A row of the table of keys."""

    path: Path
    kind: str | None
    """The branch that has this key, where a section is told apart by its `kind`."""
    expected: str
    default: str
    description: str

    @property
    def name(self) -> str:
        return dotted(self.path)


@cache
def all_keys() -> tuple[Key, ...]:
    """Every key that is no section, in the order of declaration."""
    return tuple(_keys(json_schema(), (), None))


def _keys(section: Node, path: Path, kind: str | None) -> Iterator[Key]:
    for name, child in section["properties"].items():
        child = resolve(child)
        if name == "kind" and "const" in child:
            continue  # the row of the section itself lists its kinds
        kinds = tagged(child)
        below: list[tuple[str | None, Node]] = [*kinds.items()]
        below = below or [(kind, branch) for branch in branches(child) if "properties" in branch]
        if not below or kinds or is_nullable(child):
            default = "required" if name in section.get("required", ()) else _default(child)
            yield Key((*path, name), kind, expected(child), default, child.get("description", ""))
        for tag, branch in below:
            yield from _keys(branch, (*path, name), tag)


def _default(node: Node) -> str:
    if "x-default" in node:
        return node["x-default"]
    value = node.get("default")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def choices(key: str) -> list[str]:
    """The values of a key that have names: `auto`, `on`, `true`, `null`; of `SECTION.kind` the kinds."""
    node: Node = json_schema()
    *sections, last = key.split(".")
    for section in sections:
        node = children(node).get(section, {})
    if last == "kind" and tagged(node):
        return [*tagged(node)]
    node = children(node).get(last, {})
    named = [value for branch in branches(node) for value in _named(branch)]
    return [*named, "null"] if is_nullable(node) else named


def _named(node: Node) -> list[str]:
    if node.get("type") == "boolean":
        return ["true", "false"]
    return [str(value) for value in node.get("enum", [node["const"]] if "const" in node else [])]


def nearest(word: str, candidates: list[str]) -> str | None:
    found = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return found[0] if found else None


def suggest_key(path: Path, siblings: list[str]) -> str:
    """How to mend an unknown key: a key of the same section, or of the same name elsewhere, or all there are."""
    word = str(path[-1])[:100]
    kinds = [key.kind for key in all_keys() if key.path == path and key.kind]
    if kinds:
        return f"only kind {join_or(kinds)} has it"
    close = nearest(word, siblings)
    if close:
        return f"did you mean {dotted((*path[:-1], close))}?"
    elsewhere = [key.name for key in all_keys() if key.path[-1] == word]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    return f"the keys here are {', '.join(siblings)}" if siblings else "it has no keys"
