"""Python and the installed packages against what distxcept asks for."""

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from distxcept.doctor.finding import Finding

# Of the environment only these names are ever shown; any other value may be a secret.
SHOWN_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "KERAS_BACKEND",
    "KMP_AFFINITY",
    "NCCL_DEBUG",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)

OPTIONAL_PACKAGES = ("horovod", "mpi4py", "nvidia-nccl-cu12", "protobuf", "tensorflow-cpu")


def own_requirements() -> list[Requirement]:
    """What the installed distxcept asks for, without extras; empty where it runs from a source tree only."""
    try:
        lines = metadata.requires("distxcept") or []
    except metadata.PackageNotFoundError:
        return []
    requirements = [Requirement(line) for line in lines]
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def check_python(version: tuple[int, int, int] | None = None) -> list[Finding]:
    major, minor, patch = version or sys.version_info[:3]
    data = {"version": f"{major}.{minor}.{patch}", "platform": platform.platform()}
    if (major, minor) < (3, 11):
        return [
            Finding(
                "python", "problem", f"Python {major}.{minor} is too old", "use Python 3.11 or newer", data
            )
        ]
    place = "a virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    return [Finding("python", "ok", f"Python {data['version']} in {place}, {data['platform']}", data=data)]


def check_packages(requirements: list[Requirement], installed: Mapping[str, str]) -> list[Finding]:
    if not requirements:
        return [Finding("packages", "warning", "distxcept itself is not installed", "pip install .")]
    findings, fine = [], []
    for requirement in sorted(requirements, key=lambda one: one.name):
        version = installed.get(requirement.name)
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            fine.append(f"{requirement.name} {version}")
            continue
        have = "is not installed" if version is None else f"{version} is outside {requirement.specifier}"
        findings.append(
            Finding("packages", "problem", f"{requirement.name} {have}", f"pip install '{requirement}'")
        )
    if fine:
        findings.append(Finding("packages", "ok", ", ".join(fine), data={"versions": dict(installed)}))
    return findings


def check_environment(environ: Mapping[str, str]) -> list[Finding]:
    shown = {name: environ[name] for name in SHOWN_VARIABLES if name in environ}
    text = (
        ", ".join(f"{name}={value}" for name, value in shown.items()) or "none of the known variables is set"
    )
    return [Finding("environment", "ok", text, data={"variables": shown})]


def check_keras_backend(environ: Mapping[str, str], keras_json: Mapping[str, Any]) -> list[Finding]:
    """Keras 3 takes its backend from the environment, else from a file in the home folder."""
    for source, backend in (
        ("KERAS_BACKEND", environ.get("KERAS_BACKEND")),
        ("~/.keras/keras.json", keras_json.get("backend")),
    ):
        if backend is not None:
            if backend == "tensorflow":
                return []
            shown = backend if re.fullmatch(r"\w{1,20}", str(backend)) else "something else"
            return [
                Finding(
                    "packages",
                    "problem",
                    f"Keras is set to the backend {shown} by {source}",
                    "export KERAS_BACKEND=tensorflow",
                )
            ]
    return []


def read_keras_json(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    folder = Path(environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        content = json.loads((folder / "keras.json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
