"""The child process: whatever becomes of it is told, and other libraries' chatter does not confuse it."""

import sys

import pytest

from distxcept.doctor.child import Probe, ProbeReport, read_report
from distxcept.doctor.probe import STAGES
from distxcept.doctor.tensorflow_state import check_onednn, check_tensorflow


def probe(code: str, timeout_seconds: float = 30) -> ProbeReport:
    return Probe([sys.executable, "-c", code]).finish(timeout_seconds)


def test_a_crash_is_placed() -> None:
    report = probe(
        """print('{"starting": "tensorflow"}', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"""
    )
    assert (report.died_in, report.how) == ("tensorflow", "SIGSEGV")
    (finding,) = check_tensorflow(report)
    assert (
        finding.status == "problem" and "ended while being loaded: SIGSEGV" in finding.text and finding.remedy
    )


def test_a_hang_is_ended_and_placed() -> None:
    code = (
        """print('{"starting": "tensorflow"}\\n{"stage": "tensorflow", "version": "2.21.0", "build": {}}\\n'"""
        """'{"starting": "devices"}', flush=True); import signal; signal.pause()"""
    )
    report = probe(code, timeout_seconds=2)
    assert (report.died_in, report.how) == ("devices", "no answer in 2 s")
    built, died = check_tensorflow(report)
    assert built.status == "ok" and "2.21.0" in built.text
    assert died.status == "problem" and "looking for GPUs: no answer in 2 s" in died.text


def test_a_child_that_cannot_even_start_is_a_finding() -> None:
    report = probe("raise SystemExit(3)")
    assert (report.died_in, report.how) == ("tensorflow", "exit code 3")


def test_chatter_is_passed_over() -> None:
    lines = ["hello", "[1]", '"x"', '{"stage": "unknown"}', *(f'{{"stage": "{name}"}}' for name in STAGES)]
    report = read_report("\n".join(lines), "exit code 0")
    assert report == ProbeReport({name: {} for name in STAGES})


def loaded(**tensorflow: object) -> ProbeReport:
    return ProbeReport({"tensorflow": tensorflow, "devices": {"gpus": []}})


def test_an_import_error_is_a_problem() -> None:
    (finding,) = check_tensorflow(loaded(error="ImportError: libfoo"))
    assert finding.status == "problem" and "libfoo" in finding.text


def test_a_cpu_build_is_named() -> None:
    (finding,) = check_tensorflow(loaded(version="2.21.0", build={"is_cuda_build": False}))
    assert finding.status == "ok" and "built for the CPU only" in finding.text


@pytest.mark.parametrize(
    ("onednn", "environ", "expected"),
    [
        (True, {}, ["ok"]),
        (False, {}, ["ok"]),  # the training turns it on by itself
        (False, {"TF_ENABLE_ONEDNN_OPTS": "0"}, ["warning"]),
        (None, {}, []),
    ],
)
def test_onednn_on_the_cpu(onednn: bool | None, environ: dict[str, str], expected: list[str]) -> None:
    findings = check_onednn(loaded(onednn=onednn), environ)
    assert [finding.status for finding in findings] == expected
    assert expected != ["warning"] or "unset TF_ENABLE_ONEDNN_OPTS" in (findings[0].remedy or "")


def test_onednn_does_not_matter_on_a_gpu() -> None:
    report = ProbeReport({"tensorflow": {"onednn": False}, "devices": {"gpus": [{"name": "GPU:0"}]}})
    assert check_onednn(report, {}) == []
