"""Who watches whom, and which exit code an error has. What ranks do together: tests/integration/test_lost_peers.py."""

import pytest

from distxcept.cli.attendance import exit_code_of, watched
from distxcept.cluster.peers import Peer
from distxcept.errors import DataError, PeerLostError


@pytest.mark.parametrize(
    ("ranks", "rank", "most", "found"),
    [(1, 0, 4, []), (3, 1, 4, [2, 0]), (5, 3, 2, [4, 0]), (5, 0, 4, [1, 2, 3, 4])],
)
def test_watched(ranks, rank, most, found):
    peers = [Peer(number, "h", number) for number in range(ranks)]
    assert [peer.rank for peer in watched(peers, rank, most)] == found


def test_everybody_is_watched_by_as_many():
    peers = [Peer(number, "h", number) for number in range(40)]
    seen = [peer.rank for rank in range(40) for peer in watched(peers, rank)]
    assert {seen.count(rank) for rank in range(40)} == {16}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataError("x"), 3),
        (PeerLostError("x"), 6),
        (ValueError("x"), 1),
        (SystemExit(3), 3),
        (SystemExit(0), 1),  # a rank that leaves in the middle has failed
        (SystemExit("why"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error, code):
    assert exit_code_of(error) == code
