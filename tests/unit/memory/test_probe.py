"""Which candidates are tried, in which order, and which is taken."""

import json
import os
import signal
import stat
import subprocess
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.memory import probe as module
from distxcept.memory.probe import Cache, Measured, TrialFailed, child_environ, probe, run_child


@dataclass(frozen=True)
class Option:
    micro_batch: int
    remat: bool
    needed_bytes: int


def options(micros, *, error=1.0):
    """The estimate is the truth times `error`; rematerialisation takes a third."""
    return [
        Option(micro, remat, round(micro * 30 * error) // (3 if remat else 1))
        for remat in (False, True)
        for micro in micros
    ]


def device(memory, tried, seconds=lambda micro: 100 / micro):
    def attempt(option):
        tried.append((option.micro_batch, option.remat))
        fits = option.micro_batch * 30 // (3 if option.remat else 1) <= memory
        micro = option.micro_batch
        return Measured(micro, option.remat, fits, seconds=seconds(micro) if fits else None)

    return attempt


@given(
    count=st.integers(1, 40),
    memory=st.integers(0, 1500),
    error=st.floats(0.3, 3.0),
)
def test_finds_the_largest_that_fits(count, memory, error):
    micros, tried = list(range(1, count + 1)), []
    chosen, measured = probe(options(micros, error=error), memory, device(memory, tried))
    fitting = [m for m in micros if m * 30 <= memory]
    with_remat = [m for m in micros if m * 10 <= memory]
    if fitting:
        assert (chosen.micro_batch, chosen.remat) == (max(fitting), False)
        larger = (max(fitting) + 1, False)
        assert max(fitting) == count or larger in tried  # known by trial to be too large
    elif with_remat:
        assert (chosen.micro_batch, chosen.remat) == (max(with_remat), True)
    else:
        assert chosen is None
    assert len(set(tried)) == len(tried) == len(measured)
    assert len(tried) <= 2 * (2 + count.bit_length())


@pytest.mark.parametrize("error", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("memory", [40, 100, 250, 490])
def test_a_good_estimate_needs_few_trials(error, memory):
    tried = []
    probe(options([1, 2, 3, 4, 6, 8, 16], error=error), memory, device(memory, tried))
    assert len(tried) <= 3


def test_takes_the_fastest_that_fits():
    tried = []
    slow_when_large = device(250, tried, seconds=lambda micro: {4: 1.0, 6: 0.8, 8: 0.9}[micro])
    chosen, _ = probe(options([4, 6, 8, 16], error=1.1), 250, slow_when_large)
    assert chosen.micro_batch == 6 and (8, False) in tried


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo '{\"fits\": true, \"peak_bytes\": 7, \"seconds\": 2.5}'", Measured(8, False, True, 7, 2.5)),
        (
            "echo noise; echo '{\"fits\": false, \"reason\": \"out of memory\"}'",
            Measured(8, False, False, reason="out of memory"),
        ),
        ("kill -9 $$", Measured(8, False, False, reason="the trial ended with -9", lasting=False)),
        ("kill -ABRT $$", Measured(8, False, False, reason="the trial ended with -6")),
        ("echo 'std::bad_alloc: out of memory' >&2; exit 1", Measured(8, False, False, reason="the trial ended with 1")),
        ("echo 'ResourceExhaustedError: {{node}}' >&2; exit 1", Measured(8, False, False, reason="the trial ended with 1")),
    ],
)  # fmt: skip
def test_whatever_ends_a_trial(tmp_path, monkeypatch, script, expected):
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    child.chmod(child.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(module.sys, "executable", str(child))
    assert run_child({"remat": False}, 8) == expected


def test_a_trial_that_fails_for_another_reason_is_an_error(tmp_path, monkeypatch):
    child = tmp_path / "child"
    child.write_text("#!/bin/sh\ncat > /dev/null\necho 'KeyError: classes' >&2\nexit 1\n")
    child.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(child))
    with pytest.raises(TrialFailed, match="the trial ended with 1: KeyError: classes"):
        run_child({"remat": False}, 8)


def test_a_trial_that_never_answers_does_not_fit(tmp_path, monkeypatch):
    child = tmp_path / "child"
    child.write_text("#!/bin/sh\nexec sleep 60\n")
    child.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(child))
    monkeypatch.setattr(module, "TRIAL_TIMEOUT_SECONDS", 0.2)
    measured = run_child({"remat": False}, 8)
    assert (measured.fits, measured.lasting) == (False, False)


def test_a_trial_ends_with_who_asked_for_it(tmp_path):
    """By the number of its parent, which is another process here."""
    command = [module.sys.executable, "-m", module.TRIAL_MODULE, "1"]
    done = subprocess.run(command, input="{}", capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGKILL and not done.stdout


def test_the_child_is_no_rank():
    given = {"PATH": "/bin", "OMPI_COMM_WORLD_RANK": "1", "SLURM_PROCID": "0", "HOROVOD_RANK": "1"}
    assert child_environ(given) == {"PATH": "/bin"}


def test_cache(tmp_path):
    cache = Cache(tmp_path / "probes")
    key = cache.key({"device": "CPU", "size": 299})
    assert key != cache.key({"device": "CPU", "size": 128})
    assert cache.read(key) is None
    measured = [Measured(8, True, True, 100, 0.5), Measured(16, True, False, reason="out of memory")]
    cache.write(key, measured)
    assert cache.read(key) == measured
    cache.write(key, [*measured, Measured(32, True, False, reason="killed from outside", lasting=False)])
    assert cache.read(key) == measured
    assert os.listdir(tmp_path / "probes") == [f"{key}.json"]
    (tmp_path / "probes" / f"{key}.json").write_text(json.dumps([{"micro": 1}]))
    assert cache.read(key) is None


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(module.Path, "home", nowhere)
    cache = Cache.of_user()
    cache.write("k", [])
    assert cache.read("k") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    Cache(tmp_path / "file" / "probes").write("k", [])
