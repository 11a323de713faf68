"""What this process runs on and with, in the words of the system: for records, and for comparing machines."""

import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """None where a package is not installed; a source tree on the path is no installed package."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    return {name: version for name, version in package_versions(packages).items() if version is not None}


def processor_name() -> str:
    """Its model where the kernel tells it, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
