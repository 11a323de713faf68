"""telemetry.jsonl: whole lines from many writers, and what the chief reads of other ranks."""

import json
import subprocess
import sys

import pytest

from distxcept.memory.notices import Notice
from distxcept.report.telemetry_files import FILE, LineFile, TelemetryFiles, sample_fields, scalars
from tests.unit.memory.samples import GIB, card, sample

WRITER = """
import sys
from pathlib import Path
from distxcept.report.telemetry_files import LineFile
file = LineFile(Path(sys.argv[1]))
for number in range(300):
    file.append({"kind": "sample", "rank": int(sys.argv[2]), "number": number, "filler": "x" * 6000})
"""


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_fields_are_public():
    fields = sample_fields(sample(12, card(3, throttling=("power_cap",)), data_wait=0.25))
    assert json.loads(json.dumps(fields)) == {
        "time": 1.7e9 + 12,
        "phase": "train",
        "update": 12,
        "data_wait": 0.25,
        "rss_bytes": 2 * GIB,
        "cpu_share": 0.5,
        "cards": [
            {
                "index": 3,
                "name": None,
                "memory_used_bytes": 10 * GIB,
                "memory_total_bytes": 24 * GIB,
                "utilisation_percent": 97,
                "temperature_celsius": 70,
                "power_watts": 300.0,
                "sm_clock_mhz": 1700,
                "memory_clock_mhz": 9000,
                "throttling": ["power_cap"],
            }
        ],
    }


def test_scalars_leave_out_what_a_card_does_not_tell():
    found = scalars(sample(12, card(), card(1, power_watts=None, throttling=("power_cap",))))
    assert found["gpu_0/memory_gib"] == 10
    assert "gpu_0/power_watts" in found
    assert "gpu_1/power_watts" not in found
    assert (found["gpu_0/throttled"], found["gpu_1/throttled"]) == (0, 1)


def test_many_processes_write_whole_lines(tmp_path):
    path = tmp_path / FILE
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(rank)]) for rank in range(4)]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    found = lines(path)
    assert len(found) == 4 * 300
    for rank in range(4):
        assert [entry["number"] for entry in found if entry["rank"] == rank] == list(range(300))


@pytest.mark.parametrize("wanted", [True, False])
def test_tensorboard_gets_them_where_it_is_wanted(tmp_path, wanted):
    files = TelemetryFiles(tmp_path, rank=1, ranks=2, tensorboard=wanted)
    files.open(0)
    files.write(sample(12, card()), [])
    files.close()
    assert len(lines(tmp_path / FILE)) == 1
    assert [path.name for path in tmp_path.glob("tensorboard/*")] == ["telemetry-rank-1"] * wanted


@pytest.mark.parametrize("wanted", [True, False])
def test_peaks_by_phase_stand_first_where_they_were_measured(tmp_path, wanted):
    phases = {"forward": 3 * 2**30, "update": 5 * 2**30}
    files = TelemetryFiles(tmp_path, rank=1, ranks=2, tensorboard=wanted, phases=phases)
    files.open(7)
    files.write(sample(12, card()), [])
    files.close()
    first, second = lines(tmp_path / FILE)
    assert second["kind"] == "sample"
    assert first.pop("time") > 0
    assert first == {
        "kind": "memory_phases", "rank": 1, "update": 7, "forward_bytes": 3 * 2**30, "update_bytes": 5 * 2**30
    }  # fmt: skip
    boards = b"".join(path.read_bytes() for path in tmp_path.glob("tensorboard/telemetry-rank-1/*"))
    assert (b"memory_phases/forward_gib" in boards) is wanted


def test_a_line_torn_by_a_kill_spoils_no_other(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(b'{"kind":"sample"}\n{"kind":"sam')
    file = LineFile(path)
    file.append({"kind": "notice", "rank": 1})
    assert path.read_bytes() == b'{"kind":"sample"}\n{"kind":"sam\n{"kind":"notice","rank":1}\n'
    assert file.new_entries("notice") == [{"kind": "notice", "rank": 1}]


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    LineFile(tmp_path / FILE).append({"a": 1})
    assert lines(tmp_path / FILE) == [{"a": 1}]


def test_new_entries_are_read_once_and_only_whole(tmp_path):
    path = tmp_path / FILE
    path.write_text('{"kind":"notice","n":0}\n')
    file = LineFile(path)
    assert file.new_entries("notice") == []  # of an earlier process
    with path.open("a") as other:
        other.write('{"kind":"sample"}\n{"kind":"notice","n":1}\n{"kind":"notice"}}\n{"kind":"notice",')
        other.flush()
        assert file.new_entries("notice") == [{"kind": "notice", "n": 1}]
        other.write('"n":2}\n')
    assert file.new_entries("notice") == [{"kind": "notice", "n": 2}]
    assert file.new_entries("notice") == []


class NoBoard:
    def __init__(self, *_): ...

    def scalar(self, *_): ...

    def add(self, *_): ...

    def close(self): ...


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    monkeypatch.setattr("distxcept.report.telemetry_files.EventFile", NoBoard)
    made = [TelemetryFiles(tmp_path, rank=rank, ranks=3, tensorboard=False) for rank in range(3)]
    for rank in made:
        rank.open(0)
    return made


def test_the_chief_hears_of_other_ranks(ranks, tmp_path):
    hot = Notice("thermal_throttling", "GPU 0", "GPU 0 is too hot", {"extra": 1})
    for rank in ranks:
        rank.write(sample(5), [hot])
    first, second = ranks[0].of_other_ranks()
    assert (first.kind, first.subject) == ("thermal_throttling", "rank 1 GPU 0")
    assert first.message.startswith("rank 1 on ")
    assert first.message.endswith(": GPU 0 is too hot")
    assert second.subject == "rank 2 GPU 0"
    assert ranks[0].of_other_ranks() == []
    assert ranks[1].of_other_ranks() == []
    assert [entry["kind"] for entry in lines(tmp_path / FILE)] == ["sample", "notice"] * 3
