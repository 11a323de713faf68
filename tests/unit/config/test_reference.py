"""docs/config.md says what the schema says."""

from pathlib import Path

from distxcept.config.describe import all_keys
from distxcept.config.reference import markdown

PAGE = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == markdown(), (
        "write it anew: distxcept config schema --markdown > docs/config.md"
    )


def test_every_key_is_in_it_once():
    lines = markdown().splitlines()
    for key in all_keys():
        if key.path[:2] != ("data", "validation"):
            kind = f" ({key.kind})" if key.kind else ""
            assert sum(line.startswith(f"| `{key.name}`{kind} |") for line in lines) == 1, key.name


def test_cells_keep_their_columns():
    rows = [line for line in markdown().splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
