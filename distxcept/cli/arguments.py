"""What all commands share in parsing: one-line usage errors, and the CONFIG and override arguments."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from distxcept.errors import ConfigError

MOST_REPLICAS = 65536
OVERRIDES_HELP = "key.path=value, the value read as YAML; wins over the file"
SNAPSHOT_HELP = "a run's folder or its name below runs/; RUN:best, RUN:update=N; or a snapshot's folder"


class UsageError(ConfigError):
    """The command line cannot be understood. Knows which command was meant."""

    alike = True

    def __init__(self, prog: str, message: str) -> None:
        super().__init__(f"{message} (see `{prog} --help`)")
        self.prog = prog


class Parser(argparse.ArgumentParser):
    """Refuses what it does not know in one line, with the nearest word that it does know.

    Options are never abbreviated: a script must not break when an option is added.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message, re.DOTALL)
        if choice:
            words = [word.strip(" '") for word in choice[2].split(",")]
            message = f"{_kind(message)} {choice[1][:80]!r}{_hint(choice[1], words)}"
        raise UsageError(self.prog, message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Overrides may stand before and after options, which argparse alone cannot do."""
        parsed, extra = super().parse_known_args(args, namespace)
        if isinstance(getattr(parsed, "overrides", None), list):
            parsed.overrides = parsed.overrides + [word for word in extra if not word.startswith("-")]
            extra = [word for word in extra if word.startswith("-")]
        if extra:
            options = re.findall(r"--[a-z][a-z-]*", self.format_help())
            kind = "option" if extra[0].startswith("-") else "argument"
            hint = _hint(extra[0], options, list_all=False) if kind == "option" else ""
            self.error(f"unknown {kind} {extra[0][:80]!r}{hint}")
        return parsed, extra


def _kind(message: str) -> str:
    """argparse says `argument ACTION: invalid choice`."""
    name = re.match(r"argument (\S+):", message)
    return f"unknown {name[1].lower()}" if name else "unknown word"


def _hint(word: str, known: Sequence[str], list_all: bool = True) -> str:
    close = difflib.get_close_matches(word[:100], known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}" if list_all else ""


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG and overrides, as `args.config` and `args.overrides`."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file; see `distxcept config schema --keys`")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", default=[], help=OVERRIDES_HELP)


def positive_number(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return number


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number")
    return int(text)


def replicas_number(text: str) -> int:
    number = positive_number(text)
    if number > MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text} is more than {MOST_REPLICAS} replicas")
    return number


def seconds_number(text: str) -> float:
    return number_between(text, 0, 1e6, what="number of seconds")


def number_between(text: str, least: float, most: float, *, what: str) -> float:
    """Both ends included; what is no number at all lies outside, too."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {what}")
    return value


def update_stretch(text: str) -> tuple[int, int]:
    """`updates=10-15`, or `updates=10`; both ends included, counted from 1."""
    match = re.fullmatch(r"updates=(\d{1,9})(?:-(\d{1,9}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: write updates=FIRST-LAST, such as updates=10-15")
    return first, last
