"""launch/build_horovod.sh from outside: usage, and the one line about the one thing that is missing."""

import pytest

from tests.unit.launch.test_gpu_parts import make_cuda, make_nccl

ALL = ("c++", "make", "mpicxx", "mpirun")


@pytest.mark.parametrize(
    ("programs", "arguments", "settings", "says", "remedy"),
    [
        ((), (), {}, "no C++ compiler", "apt-get install g++"),
        (("c++",), (), {}, "no `make`", "apt-get install g++ make"),
        (("c++", "make"), (), {}, "`mpicxx` is not on PATH", "apt-get install openmpi-bin libopenmpi-dev"),
        (("c++", "make", "mpicxx"), (), {}, "`mpirun` is not on PATH", "module load"),
        (("c++", "make", "mpicxx", "mpirun of MPICH"), (), {}, "two MPIs are mixed", "update-alternatives"),
        (ALL, (), {"CXX": "g++-99"}, "CXX=g++-99 is not on PATH", "apt-get install g++"),
        (ALL, ("--gpu",), {}, "`nvcc` is not on PATH", "CUDA 12"),
        (ALL, ("--gpu",), {"CUDA_HOME": "/nowhere"}, "CUDA_HOME=/nowhere has no bin/nvcc", "CUDA 12"),
    ],
)
def test_missing_prerequisite_is_one_line_with_its_remedy(
    machine, programs, arguments, settings, says, remedy
) -> None:
    for program in programs:
        machine.add(program)
    machine.environment |= settings
    done = machine.build_horovod("--no-install", *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("build_horovod: error: ")
    assert says in lines[0]
    assert remedy in lines[0]


def test_a_source_that_is_not_the_published_one_is_refused(machine, tmp_path) -> None:
    for program in ALL:
        machine.add(program)
    machine.add("cmake", 'echo "cmake version 3.25.1"')
    kept = tmp_path / "cache/distxcept/sources/horovod-0.28.1.tar.gz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"something else")
    done = machine.build_horovod("--no-install")
    assert done.returncode == 1
    assert "is not the published source of Horovod 0.28.1" in done.stderr
    assert str(kept) in done.stderr


@pytest.mark.parametrize(("toolkit", "device"), [(False, "cpu"), (True, "gpu")])
def test_a_gpu_build_is_preferred_where_it_is_possible(machine, tmp_path, toolkit, device) -> None:
    """Seen by the name of the wheel that it sets out to build; a wrong source stops it there."""
    for program in ALL:
        machine.add(program)
    machine.add("cmake", 'echo "cmake version 3.25.1"')
    if toolkit:
        make_cuda(tmp_path / "cuda")
        make_nccl(tmp_path / "nccl")
        machine.environment |= {"CUDA_HOME": f"{tmp_path}/cuda", "HOROVOD_NCCL_HOME": f"{tmp_path}/nccl"}
    kept = tmp_path / "cache/distxcept/sources/horovod-0.28.1.tar.gz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"something else")
    done = machine.build_horovod("--no-install", "--prefer-gpu")
    assert done.returncode == 1 and "is not the published source" in done.stderr
    (lock,) = (tmp_path / "cache/distxcept/wheels").glob("*.lock")
    assert f".{device}.k" in lock.name
    notice = "build_horovod: building Horovod for the CPU only: no CUDA toolkit: `nvcc` is not on PATH"
    assert (notice in done.stderr) == (not toolkit)


@pytest.mark.parametrize("arguments", [("--gpu", "--prefer-gpu"), ("--gpus",), ("extra",), ("--output",)])
def test_wrong_usage(machine, arguments) -> None:
    done = machine.build_horovod(*arguments)
    assert done.returncode == 2
    assert "usage: build_horovod.sh" in done.stderr


def test_python_that_is_not_there(machine) -> None:
    done = machine.run("build_horovod.sh", "--python=/nowhere/python")
    assert done.returncode == 2
    assert "no Python at /nowhere/python" in done.stderr


def test_python_that_is_too_old(machine) -> None:
    machine.add("python2", "exit 1")
    done = machine.run("build_horovod.sh", "--python", "python2")
    assert done.returncode == 2
    assert "older than Python 3.11" in done.stderr
