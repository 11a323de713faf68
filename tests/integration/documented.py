"""What README and docs/ show: the commands, every line of every block marked ```sh, and the blocks marked ```python."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.pages import PAGES, REPOSITORY

# What a command line may begin with. Outside of ```sh such a line would escape the test.
PROGRAM = re.compile(
    r"(\$ )?([A-Z_]+=\S+ )*(distxcept|make|mpirun|horovodrun|srun|sbatch|python|pip|tensorboard|launch/\S+|benchmarks/\S+) "
)


@dataclass(frozen=True)
class Command:
    where: str
    text: str
    """As written, without its comment."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


@dataclass(frozen=True)
class Line:
    where: str
    text: str
    block: str | None
    """The word behind the fence, "" for a block without one or an indented one; None in running text."""


def lines(page: Path) -> Iterator[Line]:
    block: str | None = None
    for number, text in enumerate(page.read_text().splitlines(), 1):
        where = f"{page.relative_to(REPOSITORY)}:{number}"
        if text.startswith("```"):
            block = text[3:].strip() if block is None else None
        elif block is None and text.startswith("    "):
            yield Line(where, text.strip(), "")
        else:
            yield Line(where, text, block)


def commands() -> list[Command]:
    found = []
    for line in (line for page in PAGES for line in lines(page)):
        text = re.sub(r"(^|\s+)#\s.*$", "", line.text)
        if line.block == "sh" and text.strip():
            found.append(Command(line.where, text.strip()))
    return found


def python_blocks() -> list[Command]:
    """Whole blocks, not lines; however the word behind the fence goes on (py, python3, pycon), none escapes."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in re.finditer(r"^ *```py\w*\n(.*?)^ *```", text, re.S | re.M):
            line = text.count("\n", 0, block.start(1)) + 1
            found.append(Command(f"{page.relative_to(REPOSITORY)}:{line}", textwrap.dedent(block[1])))
    return found


def stray_commands() -> list[Line]:
    """Command lines in blocks that nobody collects; what a command prints may look like one, in a block of text."""
    every = [line for page in PAGES for line in lines(page)]
    return [line for line in every if line.block not in (None, "sh", "text") and PROGRAM.match(line.text)]


def inline_commands() -> list[Command]:
    """`distxcept …` in running text: often cut short, so they are only parsed."""
    return [
        Command(line.where, text)
        for page in PAGES
        for line in lines(page)
        if line.block is None
        for text in re.findall(r"`(distxcept [^`]+)`", line.text)
    ]
