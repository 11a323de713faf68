"""YAML in and out: plain data only, small, with the line of every key.

Scalars follow YAML 1.2: `1e-5` is a number and `on` is text (PyYAML's own loader has it the other way round).
Values are built here from parser events, not by a PyYAML constructor: so there is no way to an object, and
duplicate keys, nesting and the size that aliases unfold to are checked before anything is built.
"""

import copy
import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent
from yaml.events import MappingEndEvent as MappingEnd

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_NODES = 10_000
MAX_DIGITS = (
    40  # integers beyond are read as floats: Python refuses to print, and no key takes, such integers
)

Path = tuple[str | int, ...]

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


class YamlProblem(Exception):
    """Text that is refused, with the line (from 1) if one is to blame."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(shorten(message, 200))
        self.line = line


@dataclass
class Document:
    """Plain data, and the line (from 1) on which each key and list item stands."""

    data: Any
    lines: dict[Path, int] = field(default_factory=dict)


def parse_yaml(text: str) -> Document:
    """Raises YamlProblem. Empty text is null, as in YAML."""
    if len(text) > MAX_BYTES:
        raise YamlProblem(f"is larger than {MAX_BYTES // 1024} KiB; this is no config")
    try:
        return _Builder(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(_explain(error), mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem(f"character {_code_point(error.character)} is not allowed in YAML", line) from error


def _code_point(character: Any) -> str:
    return f"U+{character if isinstance(character, int) else ord(character[:1] or ' '):04X}"


def _explain(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "cannot be parsed"
    if "'\\t'" in problem:
        return "not YAML: a tab; indent with spaces"
    return f"not YAML: {problem}"


def resolve_scalar(text: str) -> Any:
    """The value of an unquoted scalar."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        if len(text) > MAX_DIGITS:
            return float(text) if base == 10 else math.inf
        return int(text, base)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".", "") if text[-1].isalpha() else text)  # .inf and .nan
    return text


class _Builder:
    """Turns parser events into data. Sizes are counted with aliases unfolded."""

    def __init__(self, text: str) -> None:
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)
        self._nodes = 0
        self._lines: dict[Path, int] = {}
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # value, nodes, depth
        self._open_anchors: set[str] = set()

    def document(self) -> Document:
        next(self._events)  # stream start
        data = None
        if isinstance(next(self._events), yaml.DocumentStartEvent):
            data = self._node(next(self._events), (), 1)
            next(self._events)  # document end
            following = next(self._events)
            if isinstance(following, yaml.DocumentStartEvent):
                raise YamlProblem("a second document begins here; one file is one config", _line(following))
        return Document(data, self._lines)

    def _node(self, event: Any, path: Path, depth: int) -> Any:
        self._count(1, depth, event)
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        if event.tag is not None:
            raise YamlProblem(f"the tag {event.tag} is not supported; write plain values", _line(event))
        before = self._nodes
        if event.anchor:
            self._open_anchors.add(event.anchor)
        value, height = self._value(event, path, depth)
        if event.anchor:
            self._open_anchors.discard(event.anchor)
            self._anchors[event.anchor] = (value, self._nodes - before, height)
        return value

    def _value(self, event: Any, path: Path, depth: int) -> tuple[Any, int]:
        if isinstance(event, ScalarEvent):
            return (resolve_scalar(event.value) if event.implicit[0] else event.value), 0
        if isinstance(event, SequenceStartEvent):
            value: Any = self._sequence(path, depth)
        else:
            assert isinstance(event, MappingStartEvent)
            value = self._mapping(path, depth)
        return value, _height(value)

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            item_path = (*path, len(items))
            self._lines[item_path] = _line(event)
            items.append(self._node(event, item_path, depth + 1))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        while not isinstance(event := next(self._events), MappingEnd):
            key = self._key(event)
            key_path = (*path, key)
            if key in result:
                first = self._lines[key_path]
                raise YamlProblem(f"{dotted(key_path)}: given twice, first on line {first}", _line(event))
            self._lines[key_path] = _line(event)
            result[key] = self._node(next(self._events), key_path, depth + 1)
        return result

    def _key(self, event: Any) -> str | int:
        line = _line(event)
        self._count(1, 0, event)
        if not isinstance(event, ScalarEvent) or event.tag is not None:
            raise YamlProblem("a key must be plain text", line)
        if event.implicit[0] and event.value == "<<":
            raise YamlProblem("merge keys (<<) are not supported; write the keys out", line)
        key = resolve_scalar(event.value) if event.implicit[0] else event.value
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise YamlProblem(f"the key {shorten(event.value)!r} is no text; put it in quotes", line)
        return key

    def _alias(self, event: AliasEvent, depth: int) -> Any:
        if event.anchor in self._open_anchors:
            raise YamlProblem(f"*{event.anchor} stands inside &{event.anchor} itself", _line(event))
        if event.anchor not in self._anchors:
            raise YamlProblem(f"*{event.anchor} has no &{event.anchor} before it", _line(event))
        value, nodes, height = self._anchors[event.anchor]
        self._count(nodes, depth + height, event)
        return copy.deepcopy(value)  # an override of one use must not change the others

    def _count(self, nodes: int, depth: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise YamlProblem(f"more than {MAX_NODES} values; this is no config", _line(event))
        if depth > MAX_DEPTH:
            raise YamlProblem(f"nested more than {MAX_DEPTH} deep", _line(event))


def _height(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_height, children), default=-1)


def _line(event: Any) -> int:
    return event.start_mark.line + 1


def dotted(path: Path) -> str:
    """The key as an override would name it: `data.train.path`."""
    return ".".join(shorten(str(part)) for part in path)


def shorten(text: str, limit: int = 60) -> str:
    """One printable line of bounded length."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


class _Dumper(yaml.SafeDumper):
    """Short lists on one line, and quotes round text that our reader would take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_list(dumper: yaml.SafeDumper, data: Any) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


def _represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    # YAML takes these for line breaks and folds them to a blank, unless they are escaped in double quotes.
    style = '"' if any(character in data for character in "\x85\u2028\u2029\ufeff") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(tuple, _represent_list)
for _tag, _pattern in (("int", _INT), ("float", _FLOAT)):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern.pattern})$"), list("-+.0123456789")
    )


def dump_yaml(data: Any) -> str:
    """Block style, keys in the order given; `parse_yaml` reads back the same data."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
