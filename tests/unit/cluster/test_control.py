"""The control plane of one rank, and what `connect` refuses before it touches MPI."""

import sys

import pytest

from distxcept.cluster import Placement
from distxcept.cluster.control import AloneControl, connect
from distxcept.errors import ConfigError


def test_one_rank_needs_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # importing it would fail
    control = connect(Placement(launcher="mpirun", wire_up="pmix"))
    assert isinstance(control, AloneControl)
    assert (control.rank, control.size) == (0, 1)
    assert control.gather({"a": (1, 2)}) == [{"a": [1, 2]}]  # as JSON gives it back, as with several ranks
    assert control.broadcast("x") == "x"
    control.barrier(timeout_seconds=0)


def test_one_rank_refuses_what_several_could_not_send() -> None:
    with pytest.raises(TypeError):
        AloneControl().gather(object())


@pytest.mark.parametrize(
    "placement",
    [
        Placement(launcher="srun", size=2, wire_up=None),
        Placement(launcher="horovodrun", size=2, wire_up="gloo"),
    ],
)
def test_several_tasks_without_mpi_are_refused(placement: Placement) -> None:
    with pytest.raises(
        ConfigError, match=rf"{placement.launcher} started 2 tasks without MPI.*srun --mpi=pmix"
    ):
        connect(placement)


def test_missing_mpi4py_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ConfigError, match=r"mpi4py is not installed.*pip install 'distxcept\[horovod\]'"):
        connect(Placement(launcher="mpirun", size=2, wire_up="pmix"))
