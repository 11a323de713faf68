"""`distxcept completion`: words for the Tab key.

The script of a shell is a few lines that ask `distxcept completion words -- WORD…` for what may stand in place of the
last word. So there is one answer for all shells, taken from the parsers and the schema, and never an old one.
Nothing found: the shell offers files.
"""

import argparse
from collections.abc import Sequence
from typing import Any

EXAMPLES = """\
examples:
  distxcept completion bash >> ~/.bashrc
  distxcept completion zsh >> ~/.zshrc                                     after compinit
  distxcept completion fish > ~/.config/fish/completions/distxcept.fish

Completes commands, options, their choices, and config keys with their values: distxcept train cfg.yaml engine.na<Tab>
"""

BASH = r"""
_distxcept() {
    local line=${COMP_LINE:0:COMP_POINT} word
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[-1]}
    mapfile -t COMPREPLY < <(distxcept completion words -- "${words[@]:1}" 2>/dev/null)
    [[ ${COMPREPLY[0]} == *[.=] ]] && compopt -o nospace
    # bash itself takes a word apart at "=": what is left of it stands there already
    [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
    return 0
}
complete -o default -F _distxcept distxcept
"""

ZSH = r"""
_distxcept() {
    local -a found
    found=(${(f)"$(distxcept completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#found )) || { _files; return }
    compadd -S '' -- ${(M)found:#*[.=]}
    compadd -- ${found:#*[.=]}
}
compdef _distxcept distxcept
"""

FISH = r"""
function __distxcept_words
    set -l words (commandline -opc) (commandline -ct)
    set -l found (distxcept completion words -- $words[2..-1] 2>/dev/null)
    if test -n "$found"
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c distxcept -f -a '(__distxcept_words)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
WORDS = "words"


class _Shells(tuple[str, ...]):
    """The choices that people have; what the scripts ask for is taken too, and not offered."""

    def __contains__(self, word: object) -> bool:
        return word == WORDS or super().__contains__(word)


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "print what a shell needs to complete commands and config keys"
    parser = subparsers.add_parser(
        "completion",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("shell", metavar="SHELL", choices=_Shells(SCRIPTS), help=", ".join(SCRIPTS))
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from distxcept.cli.main import build_parser

    if args.shell in SCRIPTS:
        print(SCRIPTS[args.shell].strip())
    else:
        for word in candidates(build_parser(), args.words):
            print(word)
    return 0


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """What may stand in place of the last of these words, each whole; `.` or `=` at the end: it goes on there."""
    *before, word = words or [""]
    positionals = _positionals(parser)
    waiting: argparse.Action | None = None  # an option whose value comes next
    for earlier in before:
        if waiting is not None:
            waiting = None
        elif earlier.startswith("-"):
            waiting = next((a for a in parser._actions if earlier in a.option_strings and a.nargs != 0), None)
        elif positionals and isinstance(positionals[0], argparse._SubParsersAction):
            parser = (positionals[0].choices or {}).get(earlier, argparse.ArgumentParser(add_help=False))
            positionals = _positionals(parser)
        elif positionals and positionals[0].nargs not in ("*", "+"):
            positionals = positionals[1:]
    if waiting is None and word.startswith("-"):
        return _beginning(word, [option for a in parser._actions for option in a.option_strings])
    action = waiting or (positionals[0] if positionals else None)
    if action is not None and action.dest == "overrides":
        return overrides(word)
    return _beginning(word, [str(choice) for choice in (action.choices or ())]) if action else []


def overrides(word: str) -> list[str]:
    """Keys one section at a time, then the values of a key that has names for them."""
    from distxcept.config.describe import all_keys, choices

    key, equals, value = word.partition("=")
    if equals:
        return [f"{key}={choice}" for choice in _beginning(value, choices(key))]
    names = [name for key in all_keys() for name in (f"{key.name}=", *_kind_of(key.name))]
    return _beginning(word, [_to_next_section(name, len(word)) for name in names])


def _kind_of(section: str) -> list[str]:
    """The key that tells the kinds of a section apart, where it has kinds."""
    from distxcept.config.describe import choices

    return [f"{section}.kind="] if choices(f"{section}.kind") else []


def _to_next_section(name: str, start: int) -> str:
    end = name.find(".", start)
    return name if end < 0 else name[: end + 1]


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _beginning(start: str, words: Sequence[str]) -> list[str]:
    """Without doubles, in the order given."""
    return [word for word in dict.fromkeys(words) if word.startswith(start)]
