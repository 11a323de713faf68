"""launch/install_system_packages.sh: asks for nothing, and says what it could not do."""

import pytest

MPI_WITH_HEADERS = "exit 0"


def test_nothing_to_do(machine) -> None:
    for program in ("c++", "make", "mpirun"):
        machine.add(program)
    machine.add("mpicxx", MPI_WITH_HEADERS)
    done = machine.run("install_system_packages.sh", "build")
    assert (done.returncode, done.stderr) == (0, "")


def test_wrapper_without_headers_lacks_the_development_package(machine) -> None:
    for program in ("c++", "make", "mpirun"):
        machine.add(program)
    machine.add("mpicxx", "exit 1")
    done = machine.run("install_system_packages.sh", "build")
    assert done.returncode == 1
    assert "libopenmpi-dev" in done.stderr
    assert "openmpi-bin" not in done.stderr


def test_ordinary_user_is_told_the_command(machine) -> None:
    machine.add("c++")
    machine.add("make")
    machine.add("apt-get", "echo must not run >&2; exit 9")
    machine.add("id", "echo 1000")
    done = machine.run("install_system_packages.sh", "build")
    assert done.returncode == 1
    assert "sudo apt-get install openmpi-bin libopenmpi-dev" in done.stderr


@pytest.mark.parametrize("user", ["root", "sudo"])
def test_installs_only_what_is_missing_where_it_may(machine, user) -> None:
    machine.add("c++")
    machine.add("make")
    machine.add("id", "echo 0" if user == "root" else "echo 1000")
    machine.add("sudo", 'echo "sudo $*" >> sudo.txt; [ "$1" = -n ] && exit 0; exec "$@"')
    machine.link("chmod")
    program = r"printf '#!/bin/sh\nexit 0\n'"
    machine.add(
        "apt-get",
        f'echo "$*" >> apt.txt; case "$*" in *install*) for p in mpirun mpicxx; do {program} > $p; chmod +x $p;'
        " done ;; esac",
    )
    done = machine.run("install_system_packages.sh", "build")
    assert done.returncode == 0, done.stderr
    commands = (machine.bin / "apt.txt").read_text().splitlines()
    assert commands[0].endswith("update")
    assert commands[1].endswith("--no-install-recommends openmpi-bin libopenmpi-dev")
    assert (machine.bin / "sudo.txt").exists() == (user == "sudo")


def test_failed_install_says_why(machine) -> None:
    machine.add("id", "echo 0")
    machine.add("apt-get", "echo 'E: Unable to locate package mpich'; exit 100")
    done = machine.run("install_system_packages.sh", "build")
    assert done.returncode == 1
    assert "E: Unable to locate package mpich" in done.stderr
    assert "log: " in done.stderr


def test_wrong_usage(machine) -> None:
    done = machine.run("install_system_packages.sh", "everything")
    assert done.returncode == 2
    assert "build|test" in done.stderr


@pytest.mark.parametrize("known", [True, False])
def test_optional_packages_are_asked_for_one_by_one(machine, known) -> None:
    """A system without a package of that name still gets the others."""
    for program in ("fish", "c++", "make", "mpirun", "slurmctld", "slurmd", "srun", "munged"):
        machine.add(program, "exit 0")
    machine.add("mpicxx", MPI_WITH_HEADERS)
    machine.add("id", "echo 0")
    machine.link("chmod")
    program = r"printf '#!/bin/sh\nexit 0\n'"
    machine.add(
        "apt-get",
        f'echo "$*" >> apt.txt; case "$*" in *chromium*) exit {0 if known else 100} ;; '
        f"*mpich*) {program} > mpirun.mpich; chmod +x mpirun.mpich ;; esac",
    )
    done = machine.run("install_system_packages.sh", "test")
    assert done.returncode == 0, done.stderr
    assert ("no package chromium" in done.stderr) != known
    installs = [
        line.split()[4:] for line in (machine.bin / "apt.txt").read_text().splitlines() if " install " in line
    ]
    assert [line[-1] for line in installs] == ["chromium", "zsh", "mpich"]
