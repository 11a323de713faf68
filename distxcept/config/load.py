"""From a file and overrides to a `Config`, or to one sentence a mistake with file, line and key.

Defaults < file < overrides (`key.path=value`, the value read as YAML). Paths inside the config stay as they are
written: relative ones are relative to the current directory.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from distxcept.config.describe import children, is_open_mapping, json_schema, suggest_key
from distxcept.config.problems import Problem, find_problems
from distxcept.config.schema import Config
from distxcept.config.yaml_text import (
    MAX_BYTES,
    Document,
    Path,
    YamlProblem,
    dotted,
    dump_yaml,
    parse_yaml,
    resolve_scalar,
    shorten,
)
from distxcept.errors import ConfigError

MAPPING = "run.yaml"
"""What errors call a config that was given as a mapping; lines are those of its YAML text."""


@dataclass(frozen=True)
class Mistake:
    """A problem and the place to mend it: `file:line`, or the override."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


def as_config(config: "Config | Mapping[str, Any] | str | os.PathLike[str]") -> Config:
    """A config that is given from Python: an object, a nested mapping, or the path of a file."""
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return _config_or_error(_check(MAPPING, _parse_text(MAPPING, dump_yaml(dict(config))), ()))
    return load_config(os.fspath(config))


def load_config(path: str | FilePath, overrides: Sequence[str] = ()) -> Config:
    """Raises ConfigError with the first mistake, and how many more there are."""
    return _config_or_error(check_config(path, overrides))


def _config_or_error(result: Config | list[Mistake]) -> Config:
    if isinstance(result, Config):
        return result
    first, *others = result
    more = f" (and {len(others)} more; `distxcept config check` lists them)" if others else ""
    raise ConfigError(f"{first}{more}")


def check_config(path: str | FilePath, overrides: Sequence[str] = ()) -> Config | list[Mistake]:
    """The config, or all mistakes, those of the file in the order of its lines."""
    try:
        return _check(str(path), _parse_text(str(path), _read_text(str(path))), overrides)
    except _Unreadable as error:
        return [error.mistake]


def _check(file: str, document: Document, overrides: Sequence[str]) -> Config | list[Mistake]:
    try:
        raw = _Raw(file, document)
        mistakes = [mistake for text in overrides if (mistake := raw.override(text))]
    except _Unreadable as error:
        return [error.mistake]
    raw.default("run", "name", run_name(file))
    try:
        config = Config.model_validate(raw.data)
    except ValidationError as error:
        problems = sorted(find_problems(error), key=lambda problem: raw.order(problem.path))
        mistakes += [raw.locate(problem) for problem in problems]
    return mistakes or config


def run_name(file: str) -> str:
    """The file's name without its ending, with characters that a run's name cannot have replaced."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", FilePath(file).stem).lstrip(".-")
    return name[:100] or "run"


class _Unreadable(Exception):
    def __init__(self, where: str, message: str) -> None:
        self.mistake = Mistake(shorten(where, 300), "", message)


def _parse_text(file: str, text: str) -> Document:
    try:
        document = parse_yaml(text)
    except YamlProblem as problem:
        raise _Unreadable(f"{file}:{problem.line}" if problem.line else file, str(problem)) from problem
    if document.data is None:
        raise _Unreadable(file, "is empty; it must at least say data.train")
    if not isinstance(document.data, dict):
        raise _Unreadable(f"{file}:1", "must be a mapping of sections such as `run:` and `data:`")
    return document


def _read_text(file: str) -> str:
    try:
        with open(file, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        raise _Unreadable(file, f"cannot be read: {reason}") from error
    if len(content) > MAX_BYTES:
        raise _Unreadable(file, f"is larger than {MAX_BYTES // 1024} KiB; this is no config")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Unreadable(f"{file}:{line}", "is not UTF-8 text; save it as UTF-8") from error


class _Raw:
    """The unchecked data, and where each part of it comes from."""

    def __init__(self, file: str, document: Document) -> None:
        self.data: dict[Any, Any] = document.data
        self._file = file
        self._lines = document.lines
        self._overrides: dict[Path, str] = {}

    def override(self, text: str) -> Mistake | None:
        """Applies `key.path=value`; says what is wrong if the key cannot exist."""
        where = f"override '{shorten(text, 80)}'"
        name, equals, value_text = text.partition("=")
        if not equals:
            raise _Unreadable(where, "has no '='; write key.path=value")
        try:
            path = tuple(_override_key(part) for part in name.strip().split("."))
            value = parse_yaml(value_text).data
        except YamlProblem as error:
            raise _Unreadable(where, str(error)) from error
        problem = _unknown_key(path) or self._set(path, value)
        if problem:
            return Mistake(where, dotted(problem.path), problem.message)
        for origins in (self._lines, self._overrides):
            for stale in [known for known in origins if known[: len(path)] == path]:
                del origins[stale]
        self._overrides[path] = where
        return None

    def _set(self, path: Path, value: Any) -> Problem | None:
        section = self.data
        for index, part in enumerate(path[:-1]):
            below = section.get(part)
            if below is None:
                below = section[part] = {}
            elif not isinstance(below, dict):
                here = dotted(path[: index + 1])
                return Problem(path, f"{here} is no mapping in the file; override {here} as a whole")
            section = below
        section[path[-1]] = value
        return None

    def default(self, section: str, key: str, value: Any) -> None:
        if isinstance(self.data.setdefault(section, {}), dict):
            self.data[section].setdefault(key, value)

    def locate(self, problem: Problem) -> Mistake:
        line, override = self._origin(problem.path)
        where = override or shorten(f"{self._file}:{line}", 300)
        return Mistake(where, dotted(problem.path), problem.message)

    def order(self, path: Path) -> tuple[bool, int]:
        """Sorts by line, with overrides last."""
        line, override = self._origin(path)
        return override is not None, line

    def _origin(self, path: Path) -> tuple[int, str | None]:
        """Line or override that gave this key, or else the nearest section around it."""
        for length in range(len(path), 0, -1):
            prefix = path[:length]
            if prefix in self._overrides:
                return 0, self._overrides[prefix]
            if prefix in self._lines:
                return self._lines[prefix], None
            for override, where in self._overrides.items():
                if override[:length] == prefix:
                    return 0, where
        return 1, None


def _unknown_key(path: Path) -> Problem | None:
    node = json_schema()
    for index, part in enumerate(path):
        if is_open_mapping(node):
            return None
        keys = children(node)
        if not keys:
            return Problem(path[:index], f"has no keys of its own, so no {shorten(str(part))!r}")
        if part not in keys:
            wrong = path[: index + 1]
            return Problem(wrong, f"unknown key; {suggest_key(wrong, list(keys))}")
        node = keys[str(part)]
    return None


def _override_key(text: str) -> str | int:
    """Keys are text, but for class numbers."""
    if not text:
        raise YamlProblem("the key has an empty part; write key.path=value")
    key = resolve_scalar(text)
    return key if isinstance(key, int) and not isinstance(key, bool) else text
