"""Argument lists of each launcher, what travels with them, and which hosts are used after a loss."""

from dataclasses import replace
from pathlib import Path

import pytest

from distxcept.errors import ConfigError, PeerLostError
from distxcept.launch import choose
from distxcept.launch.choose import Wishes, choose_ranks
from distxcept.launch.hosts import Host
from distxcept.launch.mpi import Wiring, launch_command
from distxcept.launch.ranks import MpiRanks, PlainRank, Program, hosts_of_dead_ranks
from distxcept.launch.reach import dead_nodes
from distxcept.launch.settings import passed_names, rank_environ, settings
from distxcept.launch.verdict import Ending

HOSTS = [Host("a", 2), Host("b", 1)]
PROGRAM = Program(run_folder=Path("/runs/x"), config="cfg.yaml", overrides=("run.name=x",))


@pytest.mark.parametrize(
    ("wiring", "expected"),
    [
        (
            Wiring(via="mpirun", remote=True, network="10.0.0.0/24", names=("PATH", "TF_X")),
            "mpirun -np 3 --host a:2,b:1 --bind-to none --map-by slot --mca btl ^openib "
            "--mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 "
            "--mca plm_rsh_args|-o BatchMode=yes -o ConnectTimeout=10| -x PATH -x TF_X run",
        ),
        (
            Wiring(via="mpirun", as_root=True, one_host=True, interface="lo", extra=("--report-bindings",)),
            "mpirun --allow-run-as-root -np 3 --host a:2,b:1 --bind-to none --map-by slot --mca btl self,vader "
            "--mca pml ob1 --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo --report-bindings run",
        ),
        (
            Wiring(via="mpich", interface="ib0", names=("PATH", "TF_X")),
            "mpirun -np 3 -hosts a:2,b:1 -bind-to none -iface ib0 -genvlist PATH,TF_X run",
        ),
        (
            Wiring(via="srun", names=("PATH",), cpus_per_task=4, gpus=True),
            "srun --mpi=pmix --ntasks=3 --kill-on-bad-exit=1 --cpus-per-task=4 --gpu-bind=none run",
        ),
        (
            Wiring(via="srun", pin_nodes=True),
            "srun --mpi=pmix --ntasks=3 --kill-on-bad-exit=1 --nodes=2 --nodelist=a,b run",
        ),
        (
            Wiring(via="horovodrun", interface="lo", launcher="/opt/bin/horovodrun"),
            "/opt/bin/horovodrun --mpi -np 3 -H a:2,b:1 --network-interfaces lo|--mpi-args=--mca oob_tcp_if_include lo| run",
        ),
        (Wiring(via="gloo"), "horovodrun --gloo -np 3 -H a:2,b:1 run"),
    ],
    ids=lambda value: value.via if isinstance(value, Wiring) else None,
)
def test_commands(wiring, expected):
    """In `expected` spaces separate arguments, except between bars."""
    words = [
        word
        for number, part in enumerate(expected.split("|"))
        for word in ([part] if number % 2 else part.split())
    ]
    assert launch_command(wiring, HOSTS, ["run"]) == words


def test_the_program_is_an_argument_list_that_no_value_can_break_out_of():
    program = Program(
        run_folder=Path("-runs/x"), config="-o.yaml", overrides=("run.seed=1; touch x", "a=$(b)")
    )
    words = program.arguments(resume_auto=True)
    after = words[words.index("--") + 1 :]
    assert Path(words[words.index("--") - 1]).is_absolute()
    assert after[0] == "train"
    assert after[1].startswith("/") and after[1].endswith("/-o.yaml")
    assert after[2:] == ["run.seed=1; touch x", "a=$(b)", "run.resume=auto"]


def test_a_container_has_its_own_python():
    program = Program(run_folder=Path("/runs/x"), config="/c.yaml", container="-x; y.sif")
    words = program.arguments(resume_auto=False)
    assert words[:3] == ["apptainer", "exec", "--nv"]
    assert words[3].startswith("/") and words[3].endswith("/-x; y.sif")
    assert words[4:7] == ["python3", "-m", "distxcept.cli.rank"]


# -- environment ------------------------------------------------------------------------------------------


def test_what_the_user_has_set_wins():
    environ = rank_environ({"NCCL_SOCKET_IFNAME": "eth5"}, settings("t.json", "ib0"))
    assert environ["HOROVOD_TIMELINE"] == str(Path("t.json").absolute())
    assert environ["NCCL_SOCKET_IFNAME"] == "eth5"


def test_only_known_and_asked_for_variables_travel():
    environ = {
        "PATH": "p",
        "TF_X": "1",
        "SECRET": "s",
        "ASKED": "a",
        "TF_BAD;NAME": "x",
        "NCCL_DEBUG": "INFO",
    }
    assert passed_names(environ) == ["NCCL_DEBUG", "PATH", "TF_X"]
    assert passed_names(environ, ["ASKED"]) == ["ASKED", "NCCL_DEBUG", "PATH", "TF_X"]


@pytest.mark.parametrize("name", ["A=1", "", "A B", "A\nB", "-x", "NOT_SET_HERE"])
def test_names_that_are_refused(name):
    with pytest.raises(ConfigError, match="--env"):
        passed_names({"A": "1"}, [name])


# -- choice -----------------------------------------------------------------------------------------------

ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}


@pytest.fixture
def machine(monkeypatch):
    """All launchers are installed; mpirun is Open MPI's, srun knows PMIx."""
    answers = {"mpirun": "mpirun (Open MPI) 4.1.4", "srun": "pmix pmi2"}
    monkeypatch.setattr(choose.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(choose, "_output", lambda command: answers[command[0]])
    return answers


@pytest.mark.parametrize(
    ("wishes", "environ", "via", "ranks"),
    [
        (dict(ranks=3), {}, "mpirun", 3),
        (dict(ranks=2), ALLOCATION, "srun", 2),
        (dict(), ALLOCATION, "srun", 4),
        (dict(via="mpirun"), ALLOCATION, "mpirun", 4),
        (dict(hosts="x:2,y:3"), {}, "mpirun", 5),
        (dict(hosts="x:2", ranks=1), {}, "mpirun", 1),
        (dict(ranks=1, via="mpirun"), {}, "mpirun", 1),
        (dict(ranks=2, via="gloo"), {}, "gloo", 2),
    ],
)
def test_launcher_and_number(machine, wishes, environ, via, ranks):
    chosen = choose_ranks(Wishes(**wishes), PROGRAM, environ)
    assert isinstance(chosen, MpiRanks)
    assert (chosen.wiring.via, chosen.size) == (via, ranks)


def test_one_rank_needs_no_mpi(machine):
    assert isinstance(choose_ranks(Wishes(ranks=1), PROGRAM, {}), PlainRank)
    assert isinstance(choose_ranks(Wishes(), PROGRAM, {}), PlainRank)


def test_srun_without_pmix_and_another_mpirun(machine):
    machine.update(srun="none pmi2", mpirun="HYDRA build details:")
    chosen = choose_ranks(Wishes(), PROGRAM, ALLOCATION)
    assert isinstance(chosen, MpiRanks)
    assert chosen.wiring.via == "mpich"


def test_ranks_of_one_machine_stay_on_loopback(machine):
    chosen = choose_ranks(Wishes(ranks=2), PROGRAM, {})
    assert isinstance(chosen, MpiRanks)
    assert chosen.wiring.interface == choose.loopback()
    assert "oob_tcp_if_include" in chosen.command(resume_auto=False)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (dict(hosts="a:2", hostfile="f"), "exclude each other"),
        (dict(ranks=2, min_ranks=3), "--min-np 3 is more"),
        (dict(ranks=3, hosts="a:2"), "2 slots"),
        (dict(ranks=2, interface="eth0;x"), "--interface"),
        (dict(ranks=2, via="srun"), "inside of an allocation"),
    ],
)
def test_wishes_that_cannot_be_met(machine, wishes, message):
    with pytest.raises(ConfigError, match=message):
        choose_ranks(Wishes(**wishes), PROGRAM, {})


def test_no_mpi_installed(monkeypatch):
    monkeypatch.setattr(choose.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="apt-get install openmpi-bin"):
        choose_ranks(Wishes(ranks=2), PROGRAM, {})


# -- after a loss -----------------------------------------------------------------------------------------

DIED_ON_B = Ending(
    code=137, log_tails={0: "noticed that process rank 2 with PID 0 on node b exited on signal 9 (Killed)."}
)
DIED_SOMEWHERE = Ending(code=6)


def ranks(lost=(), **changes):
    made = MpiRanks(
        program=PROGRAM,
        wiring=Wiring(via="srun"),
        environment={},
        hosts=tuple(HOSTS),
        ranks_wanted=3,
        find_lost=lambda names: set(lost) & set(names),
    )
    return replace(made, **changes)


def test_nothing_changes_if_all_hosts_answer():
    left, change = ranks().after_loss(DIED_SOMEWHERE)
    assert (left.size, change) == (3, "")
    assert left.command(resume_auto=False) == ranks().command(resume_auto=False)


def test_a_lost_host_is_left_out():
    left, change = ranks(lost=["a"]).after_loss(DIED_SOMEWHERE)
    assert (left.size, change) == (1, "without a, as 1 of 3 ranks")
    assert left.command(resume_auto=False)[:6] == [
        "srun", "--mpi=pmix", "--ntasks=1", "--kill-on-bad-exit=1", "--nodes=1", "--nodelist=b"
    ]  # fmt: skip


def test_spare_slots_are_used():
    left, _ = ranks(lost=["b"], hosts=(Host("a", 3), Host("b", 1))).after_loss(DIED_SOMEWHERE)
    assert left.size == 3


def test_too_few_are_left():
    with pytest.raises(PeerLostError, match=r"a cannot be reached.*1 slots.*--min-np is 2"):
        ranks(lost=["a"], min_ranks=2).after_loss(DIED_SOMEWHERE)


def test_a_host_on_which_ranks_die_twice_in_a_row_is_left_out():
    once, change = ranks().after_loss(DIED_ON_B)
    assert (once.size, change) == (3, "")
    twice, change = once.after_loss(DIED_ON_B)
    assert (twice.size, change) == (2, "without b, as 2 of 3 ranks")
    elsewhere, _ = once.after_loss(DIED_SOMEWHERE)
    assert elsewhere.after_loss(DIED_ON_B)[0].size == 3


def test_it_is_kept_if_there_is_no_other():
    alone = ranks(hosts=(Host("b", 3),), blamed=("b",))
    assert alone.after_loss(DIED_ON_B)[0].size == 3
    needed = ranks(min_ranks=3, blamed=("b",))
    assert needed.after_loss(DIED_ON_B)[0].size == 3


def test_who_died_where_by_srun():
    text = "srun: error: n2: task 1: Killed\nsrun: error: n1: task 0: Exited with exit code 6\n"
    assert hosts_of_dead_ranks(Ending(code=137, log_tails={0: text})) == ["n2"]


def test_nodes_that_slurm_gave_up():
    shown = (
        "NodeName=n1 Arch=x86_64 State=ALLOCATED ThreadsPerCore=1\n"
        "NodeName=n2 State=DOWN*+DRAIN Reason=Not responding\n"
        "NodeName=n3 State=MIXED*\n"
        "NodeName=n4 State=IDLE+DRAIN\n"
    )
    assert dead_nodes(shown) == {"n2", "n3"}


def test_tags_of_horovodrun_are_removed():
    assert ranks().clean(b"[1,0]<stderr>:epoch 1") == b"epoch 1"
    assert ranks().clean(b"epoch [1,2] 1") == b"epoch [1,2] 1"
