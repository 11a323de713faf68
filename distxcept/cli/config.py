"""`distxcept config`: what a config resolves to, what is wrong with it, and which keys there are."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import add_config_arguments

if TYPE_CHECKING:
    from distxcept.config.load import Mistake

SHOW_EXAMPLES = """\
examples:
  distxcept config show configs/quickstart.yaml
  distxcept config show configs/quickstart.yaml batch.global=64 'data.augment={flip: false}' > mine.yaml
  distxcept config show configs/quickstart.yaml --json

Paths inside the config are relative to the current directory.
"""

CHECK_EXAMPLES = """\
examples:
  distxcept config check configs/quickstart.yaml                    prints ok, or every mistake (exit 2)
  distxcept config check configs/quickstart.yaml optimizer.name=adam --json
"""

SCHEMA_EXAMPLES = """\
examples:
  distxcept config schema --keys                       every key with type, default and meaning
  distxcept config schema --keys optimizer             those that begin so
  distxcept config schema > distxcept.schema.json      JSON Schema, for completion in an editor
  distxcept config schema --markdown > docs/config.md  the page of the documentation
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "show a resolved config, check one, or list all keys"
    parser = subparsers.add_parser(
        "config",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="examples:\n  distxcept config show configs/quickstart.yaml\n  distxcept config schema --keys",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)

    def add(name: str, run: Any, summary: str, examples: str) -> argparse.ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}."
        action = actions.add_parser(
            name, help=summary, description=description, epilog=examples, parents=[common]
        )
        action.set_defaults(run=run)
        return action

    show = add("show", _show, "print the resolved config as YAML that runs as it is", SHOW_EXAMPLES)
    add_config_arguments(show)
    show.add_argument("--json", action="store_true", help="JSON instead of YAML")
    check = add("check", _check, "list every mistake in a config", CHECK_EXAMPLES)
    add_config_arguments(check)
    check.add_argument("--json", action="store_true", help="the mistakes as JSON")
    schema = add(
        "schema", _schema, "print the JSON Schema of the config, or a table of its keys", SCHEMA_EXAMPLES
    )
    form = schema.add_mutually_exclusive_group()
    form.add_argument("--keys", nargs="?", const="", metavar="PREFIX", help="a table of keys, to be read")
    form.add_argument("--markdown", action="store_true", help="all keys as a page in Markdown")


def _show(args: argparse.Namespace) -> int:
    from distxcept.config.load import load_config

    config = load_config(args.config, args.overrides)
    if args.json:
        print(json.dumps(config.model_dump(mode="json"), indent=2, ensure_ascii=False))
    else:
        print(config.to_yaml(), end="")
    return 0


def _check(args: argparse.Namespace) -> int:
    from distxcept.config.load import check_config

    result = check_config(args.config, args.overrides)
    mistakes: list[Mistake] = result if isinstance(result, list) else []
    if args.json:
        rows = [{"where": m.where, "key": m.key, "message": m.message} for m in mistakes]
        print(json.dumps({"ok": not mistakes, "mistakes": rows}, indent=2, ensure_ascii=False))
    elif mistakes:
        print("\n".join(map(str, mistakes)))
    elif not args.quiet:
        print("ok")
    return 2 if mistakes else 0


def _schema(args: argparse.Namespace) -> int:
    from distxcept.config.describe import all_keys, json_schema
    from distxcept.config.reference import markdown
    from distxcept.errors import ConfigError

    if args.markdown:
        print(markdown(), end="")
        return 0
    if args.keys is None:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return 0
    keys = [key for key in all_keys() if key.name.startswith(args.keys)]
    if not keys:
        raise ConfigError(
            f"no key begins with {args.keys[:80]!r}; `distxcept config schema --keys` lists all"
        )
    names = [key.name + (f" ({key.kind})" if key.kind else "") for key in keys]
    width = max(map(len, names))
    for name, key in zip(names, keys, strict=True):
        print(f"{name:<{width}}  {key.description}")
        print(
            f"{'':<{width}}  {key.expected}; default {key.default}".replace(
                "; default required", "; required"
            )
        )
    return 0
