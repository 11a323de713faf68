"""Draws the layers of the package from its real imports, into docs/architecture.md.

    python docs/draw_architecture.py

An arrow means "imports". Arrows that follow from others are left out (a → c where a → b → c): what stays shows the order.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, PAGE = ROOT / "distxcept", ROOT / "docs" / "architecture.md"
PICTURE = re.compile(r"```mermaid\n.*?```", re.DOTALL)

# What each part is for; a part without a line here fails the drawing.
PURPOSE = {
    "api": "from Python: Trainer, Run",
    "cli": "one file a command",
    "prove": "the guarantees, on this machine",
    "doctor": "is this machine ready",
    "launch": "start, supervise, restart ranks",
    "export": "Keras, SavedModel, TFLite, ONNX",
    "report": "terminal, HTML, TensorBoard",
    "training": "update.py, loop.py",
    "checkpoint": "snapshots",
    "memory": "what fits, telemetry",
    "model": "Xception, batch norm, weights",
    "data": "sources, order, decoding",
    "engines": "single, mirrored, horovod",
    "cluster": "who am I, who are my peers",
    "batching": "all batch arithmetic",
    "config": "schema, loading, errors",
    "errors": "exit codes",
}

Edges = dict[str, set[str]]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def edges() -> Edges:
    """Which part imports which; a part is a folder or a file right below the package."""
    found: Edges = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part != "__init__":
            modules = [module.split(".") for module in imported(path)]
            others = {names[1] for names in modules if names[0] == "distxcept" and len(names) > 1}
            others -= {part, "__version__"}
            found.setdefault(part, set()).update(others)
    return found


def reduced(graph: Edges) -> Edges:
    """Without the arrows that follow from others."""

    def reached(start: str, avoid: str) -> set[str]:
        found: set[str] = set()
        ways = [part for part in graph[start] if part != avoid]
        while ways:
            part = ways.pop()
            if part not in found:
                found.add(part)
                ways.extend(graph[part])
        return found

    return {a: {b for b in others if b not in reached(a, b)} for a, others in graph.items()}


def mermaid(graph: Edges) -> str:
    nodes = [f'    {part}["<b>{part}</b><br/>{PURPOSE[part]}"]' for part in sorted(graph)]
    arrows = [f"    {a} --> {b}" for a, others in sorted(reduced(graph).items()) for b in sorted(others)]
    return "\n".join(["```mermaid", "flowchart TD", *nodes, *arrows, "```"])


def page(text: str) -> str:
    return PICTURE.sub(lambda _: mermaid(edges()), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
