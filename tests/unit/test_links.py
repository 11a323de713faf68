"""Every page is reached from README, every link leads somewhere, pieces of config are valid, nothing is left to fill in."""

import re
from pathlib import Path

import pytest
import yaml

from distxcept.config.schema import Config
from tests.pages import PAGES, REPOSITORY

LEFTOVER = re.compile(r"@[A-Z][A-Z0-9_]*@|\b(TODO|FIXME|TBD|XXX)\b")


def links(page: Path) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_readme_links_every_page():
    linked = {(REPOSITORY / link.partition("#")[0]).resolve() for link in links(REPOSITORY / "README.md")}
    assert [page.name for page in PAGES[1:] if page not in linked] == []


SNIPPETS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(
        re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("text", SNIPPETS)
def test_pieces_of_config_are_valid(text):
    config = yaml.safe_load(text)
    config["data"] = {"train": {"kind": "synthetic", "samples": 8, "classes": 2}, **config.get("data", {})}
    Config.model_validate(config)


def test_there_are_some():
    assert len(SNIPPETS) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_be_filled_in(page):
    lines = enumerate(page.read_text().splitlines(), 1)
    left = [f"{page.name}:{number}: {line}" for number, line in lines if LEFTOVER.search(line)]
    assert not left


def test_leftovers_are_recognised():
    left = ["| @ACC@ |", "@S71@ and", "TODO: measure", "<!-- FIXME -->", "TBD", "XXX figures"]
    assert [line for line in left if not LEFTOVER.search(line)] == []
    fine = ["you@example.org and me@example.org", "0.33GB/s@120us", "`@dataclass`", "RUN:update=N"]
    assert [line for line in fine if LEFTOVER.search(line)] == []
