"""Imports go downward only, and what must start fast imports no TensorFlow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "distxcept"

# From the top down. A layer may import itself and what stands below it.
LAYERS = [
    "api",
    "cli",
    "prove",
    "doctor",
    "launch",
    "export",
    "report",
    "training",
    "checkpoint",
    "memory",
    "model",
    "data",
    "engines",
    "cluster",
    "batching",
    "config",
    "errors",
]


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "distxcept" and len(parts) > 1 else None


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "distxcept"}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LAYERS)


def test_every_folder_is_a_layer():
    assert {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES} == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downward(path):
    own = LAYERS.index(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    layers = {layer_of(module) for module in imports(path)} - {None, "__version__"}
    upward = {layer for layer in layers if LAYERS.index(layer) < own}
    assert not upward


def test_horovod_is_imported_in_one_place():
    """Besides the doctor's child process, whose business is whether it can be imported."""
    importers = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(module.split(".")[0] == "horovod" for module in imports(path))
    }
    assert importers == {"engines/horovod.py", "doctor/probe.py"}


@pytest.mark.parametrize(
    "module",
    [
        "config.load",
        "config.schema",
        "batching",
        "cluster",
        "cli.main",
        "errors",
        "api",
        "model.layout",
        "model.network",
        "model.freezing",
        "memory.planning",
        "memory.nvml",
        "data.peek",
        "report.html",
        "report.comparison",
        "report.console",
        "report.predictions_file",
        "report.writers.observer",
    ],
)
def test_light_modules_import_no_tensorflow(module):
    code = (
        f"import sys, distxcept.{module}; "
        "heavy = {'tensorflow', 'keras', 'horovod', 'mpi4py.MPI'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
