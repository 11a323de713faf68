"""Who tells the user of a loss."""

import pytest

from distxcept.cluster.health import Health
from distxcept.cluster.peers import Loss, Peer


@pytest.mark.parametrize(
    ("rank", "lost", "told", "times"),
    [
        (1, 0, False, 1),  # two threads may come to it, the user hears it once
        (2, 0, False, 0),  # rank 1 does
        (0, 2, False, 1),
        (0, 1, True, 0),  # rank 1 named its own error
        (0, 0, False, 0),  # stopped and woken, it reads of its own loss: rank 1 has told it
    ],
)
def test_the_lowest_rank_that_is_left_tells_it_once(tmp_path, rank, lost, told, times):
    health = Health(tmp_path, rank, 3, [Peer(number, "far", 7) for number in range(3)], 30.0)
    said = []
    for _ in range(3):
        health.tell_of(Loss(lost, "rank is lost", told), lambda: said.append("rank is lost"))
    assert len(said) == times
