"""Every key of the config as a page: docs/config.md is what this gives, and a test keeps it so."""

from distxcept.config.describe import Key, Node, all_keys, json_schema, resolve

HEAD = """\
# Every config key

Written from the schema by `distxcept config schema --markdown`; `distxcept config schema --keys` shows the same in the
terminal. A file holds the keys as nested YAML; on the command line each is `key.path=value`, the value read as YAML.
Defaults < file < command line. An unknown key ends the command with exit 2, the line, and the nearest key that there is.
Only `data.train` has to be given.
"""


# Its keys are those of data.train; once is enough.
TWIN = ("data", "validation")


def markdown() -> str:
    sections = json_schema()["properties"]
    return HEAD + "".join(_section(name, resolve(node)) for name, node in sections.items())


def _section(name: str, node: Node) -> str:
    keys = [key for key in all_keys() if key.path[0] == name and (key.path[:2] != TWIN or key.path == TWIN)]
    words = node["description"] if "properties" in node else ""
    about = f"{words[0].upper()}{words[1:]}.\n\n" if words else ""
    return f"\n## {name}\n\n{about}| key | value | default | meaning |\n|---|---|---|---|\n" + "".join(
        map(_row, keys)
    )


def _row(key: Key) -> str:
    kind = f" ({key.kind})" if key.kind else ""
    default = {"required": "**required**"}.get(key.default, f"`{key.default}`")
    if key.default.startswith("{") and "kind" not in key.default:
        default = "those below"
    more = "; keys as those of data.train" if key.path == TWIN else ""
    return f"| `{key.name}`{kind} | {_cell(key.expected)} | {_cell(default)} | {_cell(key.description)}{more} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
