"""Compiles the image kernel when the package is installed; without a C++ compiler it installs all the same."""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / "distxcept" / "data" / "scaling"
        made = runpy.run_path(str(folder / "build.py"))["build"]()
        if made is None:
            return
        build_data["artifacts"].append(str(made.relative_to(self.root)))
        build_data["pure_python"] = False
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{machine}"
