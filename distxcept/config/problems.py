"""From the errors of pydantic to sentences: one for each wrong key, about the branch that was meant."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from distxcept.config.base import MAX_INT
from distxcept.config.describe import (
    Node,
    branches,
    children,
    expected,
    is_nullable,
    join_or,
    json_schema,
    nearest,
    resolve,
    suggest_key,
    tagged,
)
from distxcept.config.yaml_text import Path, dotted, shorten


@dataclass(frozen=True)
class Problem:
    """A key and what is wrong with it."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


def find_problems(error: ValidationError) -> list[Problem]:
    """One problem a key. Where a value is wrong because something inside it is, only that is reported."""
    located = [
        (details, _locate(details["loc"]))
        for details in error.errors(include_url=False)
        if details["type"] != "default_factory_not_called"  # a consequence of another error
    ]
    paths = [place.path for _, place in located]
    problems: dict[Path, Problem] = {}
    for details, place in located:
        length = len(place.path)
        cause_inside = any(len(path) > length and path[:length] == place.path for path in paths)
        if cause_inside and details["type"] != "contradiction":
            continue
        problem = _explain(details, place)
        problems.setdefault(problem.path, problem)
    return list(problems.values())


@dataclass(frozen=True)
class _Place:
    path: Path
    node: Node
    """Schema of the value; of the section, if the key is unknown."""
    parent: Node


def _locate(loc: tuple[str | int, ...]) -> _Place:
    """Pydantic mixes names of union branches into its locations; the schema tells them from keys."""
    path: Path = ()
    node = parent = json_schema()
    parts = list(loc)
    while parts:
        part = parts.pop(0)
        if kinds := tagged(node):
            node = kinds[str(part)]
            continue
        if len(branches(node)) > 1:
            if not parts:
                break
            node = _branch_named(str(part), branches(node))
            part = parts.pop(0)
        path = (*path, part)
        parent, node = node, _child(node, part)
        if parts[:1] == ["[key]"]:
            node = {"x-type": "the name or the number of a class as key"}
            break
    return _Place(path, node, parent)


def _branch_named(label: str, alternatives: list[Node]) -> Node:
    kind = "object" if label.startswith("dict") else "array"
    return next(branch for branch in alternatives if branch.get("type") == kind)


def _child(node: Node, part: str | int) -> Node:
    branch = branches(node)[0]
    if isinstance(part, int) and branch.get("type") == "array":
        fixed = branch.get("prefixItems")
        return resolve(fixed[min(part, len(fixed) - 1)] if fixed else branch["items"])
    if str(part) in branch.get("properties", {}):
        return resolve(branch["properties"][str(part)])
    values = branch.get("additionalProperties")
    return resolve(values) if isinstance(values, dict) else branch


def _explain(details: ErrorDetails, place: _Place) -> Problem:
    kind, context = details["type"], details.get("ctx", {})
    if kind in ("extra_forbidden", "invalid_key"):  # the latter is a key that is a number
        return Problem(place.path, f"unknown key; {suggest_key(place.path, list(children(place.parent)))}")
    if kind == "missing" and isinstance(place.path[-1], int):
        return Problem(place.path[:-1], _mismatch(expected(place.parent), [], details["input"]))
    if kind == "missing":
        return _missing(place.path, place.node)
    if kind == "contradiction":
        return Problem((*place.path, *context["key"].split(".")), context["message"])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        kinds = list(tagged(place.node))
        path = (*place.path, "kind")
        if kind == "union_tag_not_found" and "kind" not in details["input"]:
            return Problem(path, f"missing; expected {join_or(kinds)}")
        return Problem(path, _mismatch(join_or(kinds), kinds, details["input"]["kind"]))
    return Problem(place.path, _mismatch(expected(place.node), list(_choices(place.node)), details["input"]))


def _missing(path: Path, node: Node) -> Problem:
    """Names the first key that has to be written, not the section it is in."""
    while not tagged(node) and not is_nullable(node) and node.get("required"):
        path = (*path, node["required"][0])
        node = resolve(node["properties"][node["required"][0]])
    return Problem(path, f"missing; expected {expected(node)} ({node['description']})")


def _choices(node: Node) -> Iterator[str]:
    for branch in branches(node):
        yield from (
            str(value) for value in branch.get("enum", [branch["const"]] if "const" in branch else ())
        )


def _mismatch(wanted: str, choices: list[str], value: Any) -> str:
    close = nearest(value[:100], choices) if isinstance(value, str) else None
    hint = f"; did you mean {close}?" if close and len(choices) > 1 else ""
    if isinstance(value, int) and abs(value) > MAX_INT:
        hint = f"; no integer may exceed {MAX_INT}"
    if value is None and wanted == "a mapping":
        hint = "; remove the line or write {}"
    return f"expected {wanted}, got {show(value)}{hint}"


def show(value: Any) -> str:
    """A value as it would stand in YAML, short and in one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if len(value) > 4 else shorten(f"[{', '.join(map(show, value))}]")
    return shorten(repr(value), 50)
