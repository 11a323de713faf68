"""SLURM's two compressed notations."""

import pytest

from distxcept.cluster.slurm import expand_host_list, expand_tasks_per_node


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("node1", ("node1",)),
        ("node[1-3]", ("node1", "node2", "node3")),
        ("node[08-10,12],login", ("node08", "node09", "node10", "node12", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("a[1,3]-ib,b", ("a1-ib", "a3-ib", "b")),
        ("odd[x-y]", ("odd[x-y]",)),
        ("odd[3-1]", ("odd[3-1]",)),
        ("odd[1", ("odd[1",)),
    ],
)
def test_host_list(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_host_list(text) == hosts


@pytest.mark.parametrize(
    ("text", "counts"),
    [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4,2(x2)", [4, 2, 2]), ("", None), ("2(x)", None), ("a", None)],
)
def test_tasks_per_node(text: str, counts: list[int] | None) -> None:
    assert expand_tasks_per_node(text) == counts
