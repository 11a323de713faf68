"""What the probe found out about TensorFlow itself."""

from collections.abc import Mapping
from typing import Any

from distxcept.cluster.compute import ONEDNN
from distxcept.doctor.child import ProbeReport
from distxcept.doctor.finding import Finding

AREA = "tensorflow"


def check_tensorflow(report: ProbeReport) -> list[Finding]:
    loaded = report.stage("tensorflow")
    if loaded is None or report.died_in in ("tensorflow", "devices"):
        doing = {"devices": "looking for GPUs"}.get(report.died_in or "", "being loaded")
        text = f"TensorFlow ended while {doing}: {report.how}"
        remedy = (
            "run `python -c 'import tensorflow as tf; tf.config.list_physical_devices()'` to see it; a reinstall "
            "in a fresh virtual environment mends a mixed one; CUDA_VISIBLE_DEVICES=-1 shows whether it is the GPU"
        )
        findings = [Finding(AREA, "problem", text, remedy, {"died_in": report.died_in, "how": report.how})]
        return findings if loaded is None or "error" in loaded else [_built(loaded), *findings]
    if "error" in loaded:
        return [
            Finding(
                AREA,
                "problem",
                f"TensorFlow cannot be imported: {loaded['error']}",
                "pip install --force-reinstall 'tensorflow>=2.21,<2.22'",
            )
        ]
    return [_built(loaded), *_devices(report)]


def _built(loaded: Mapping[str, Any]) -> Finding:
    build = loaded.get("build", {})
    if build.get("is_cuda_build"):
        how = f"built with CUDA {build.get('cuda_version')} and cuDNN {build.get('cudnn_version')}"
    else:
        how = "built for the CPU only"
    return Finding(AREA, "ok", f"TensorFlow {loaded.get('version')}, {how}", data=dict(loaded))


def _devices(report: ProbeReport) -> list[Finding]:
    devices = report.stage("devices") or {}
    if "error" in devices:
        text = f"TensorFlow cannot list its devices: {devices['error']}"
        return [Finding(AREA, "problem", text, "CUDA_VISIBLE_DEVICES=-1 trains on the CPU meanwhile")]
    return []


def check_onednn(report: ProbeReport, environ: Mapping[str, str]) -> list[Finding]:
    """Only for training on the CPU: measured 1.3 to 1.45 times the speed for Xception."""
    loaded, devices = report.stage("tensorflow") or {}, report.stage("devices") or {}
    if devices.get("gpus") or loaded.get("onednn") is None:
        return []
    if loaded["onednn"]:
        return [Finding(AREA, "ok", "oneDNN is on for training on the CPU", data={"onednn": True})]
    if environ.get(ONEDNN) != "0":
        text = "oneDNN is off by TensorFlow's own choice; distxcept train turns it on for a run on the CPU"
        return [Finding(AREA, "ok", text, data={"onednn": False})]
    text = f"oneDNN is off by {ONEDNN}=0: training on the CPU is slower"
    remedy = f"unset {ONEDNN} (about 1.3 times the speed; the last bits of results change)"
    return [Finding(AREA, "warning", text, remedy, {"onednn": False})]
