"""All checks together: the slow one (TensorFlow, in a child process) runs while the others do."""

import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from distxcept.cluster.machine import installed_versions
from distxcept.doctor import cards, gpu, host, launchers, packages, tensorflow_state
from distxcept.doctor.advisories import ADVISORIES, check_advisories
from distxcept.doctor.child import Probe, ProbeReport
from distxcept.doctor.compute_capability import check_compute_capability
from distxcept.doctor.finding import Finding
from distxcept.memory import nvml

PROBE_SECONDS = 60.0
CUDA_PACKAGES = ("nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-nccl-cu12")


def examine(
    environ: Mapping[str, str] = os.environ,
    timeout_seconds: float = PROBE_SECONDS,
    report: ProbeReport | None = None,
) -> list[Finding]:
    """Every finding on this machine. `report` stands in for the child process, where it is already known."""
    probe = Probe() if report is None else None
    try:
        findings = _quick_checks(environ)
        driver, states = nvml.read_driver(), nvml.read_gpus()
        if report is None:
            assert probe is not None
            report = probe.finish(timeout_seconds)
    finally:
        if probe is not None:
            probe.stop()
    gpus = states if isinstance(states, list) else []
    return [
        *findings,
        *tensorflow_state.check_tensorflow(report),
        *tensorflow_state.check_onednn(report, environ),
        *_gpu_checks(environ, report, driver, states),
        *launchers.check_launchers(report, launchers.read_commands(report), len(gpus)),
        *launchers.check_placement(environ),
        *_host_checks(environ),
    ]


def _quick_checks(environ: Mapping[str, str]) -> list[Finding]:
    requirements = packages.own_requirements()
    names = {requirement.name for requirement in requirements} | {one.package for one in ADVISORIES}
    installed = installed_versions((*sorted(names), *packages.OPTIONAL_PACKAGES))
    return [
        *packages.check_python(),
        *packages.check_packages(requirements, installed),
        *packages.check_keras_backend(environ, packages.read_keras_json(environ)),
        *packages.check_environment(environ),
        *check_advisories(installed),
    ]


def _gpu_checks(
    environ: Mapping[str, str],
    report: ProbeReport,
    driver: nvml.Driver | nvml.NvmlUnavailable,
    states: list[nvml.GpuState] | nvml.NvmlUnavailable,
) -> list[Finding]:
    build = (report.stage("tensorflow") or {}).get("build", {})
    gpus = states if isinstance(states, list) else []
    found = find_libraries([*gpu.needed_libraries(build), gpu.NCCL_LIBRARY], environ) if gpus else {}
    causes = cards.check_driver(driver, nvidia_card_on_pci_bus())
    if isinstance(driver, nvml.Driver):
        causes += gpu.check_driver_for_build(build, driver)
    per_card = cards.check_cards(states) if isinstance(states, list) else []
    if all(state.problem is not None for state in gpus):
        causes, per_card = [*causes, *per_card], []
    causes += gpu.check_visible_devices(environ, gpus)
    seen = (report.stage("devices") or {}).get("gpus")
    if not seen:  # where TensorFlow uses a GPU, its libraries are wherever it found them
        causes += gpu.check_cuda_libraries(build, gpus, found, installed_versions(CUDA_PACKAGES))
    visible = [gpus[number] for number in dict.fromkeys(gpu.visible_cards(environ, gpus))]
    causes += check_compute_capability(build, visible, driver if isinstance(driver, nvml.Driver) else None)
    verdict = gpu.check_training_device(build, seen, states, causes)
    return [*causes, *per_card, *gpu.check_nccl(gpus, found), *verdict]


def _host_checks(environ: Mapping[str, str]) -> list[Finding]:
    facts = host.read_host()
    return [*host.check_host(facts), *host.check_threads(environ, facts.usable_cores)]


def nvidia_card_on_pci_bus(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Asked of the kernel, not of NVIDIA: is there a display controller (class 03) of vendor 10de?"""
    for device in devices.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            return True
    return False


def find_libraries(names: list[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Where the loader would find each file: pip's nvidia packages, LD_LIBRARY_PATH, the system's cache."""
    if not names:
        return {}
    pip_folders = Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/lib")
    folders = [*pip_folders, *map(Path, filter(None, environ.get("LD_LIBRARY_PATH", "").split(":")))]
    found = {name: str(folder) for folder in reversed(folders) for name in names if (folder / name).exists()}
    try:
        cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.TimeoutExpired):
        cache = ""
    for line in cache.splitlines():
        name, _, path = line.strip().partition(" ")
        if name in names and name not in found and "=>" in path:
            found[name] = str(Path(path.split("=>")[1].strip()).parent)
    return found
