"""What each rank of the control plane's tests runs: argument 1 names the scene."""

import os
import signal
import sys

from distxcept.cluster import Placement, detect
from distxcept.cluster.control import Control, connect
from distxcept.errors import ConfigError, PeerLostError


def exchange_values(control: Control, placement: Placement) -> None:
    ranks = range(placement.size)
    longer_by_rank = ["ü" * 1000 * rank for rank in ranks]
    mine = {"rank": placement.rank, "text": longer_by_rank[placement.rank], "none": None}
    assert control.gather(mine) == [
        {"rank": rank, "text": longer_by_rank[rank], "none": None} for rank in ranks
    ]
    for root in ranks:
        assert control.broadcast(["from", placement.rank], root=root) == ["from", root]
    assert control.gather([]) == [[]] * placement.size
    print(f"rank {placement.rank} agrees", flush=True)


def wait_for_one_that_never_comes(control: Control, placement: Placement) -> None:
    if placement.rank == 1:
        signal.pause()
    try:
        control.barrier(timeout_seconds=1)
    except PeerLostError as error:
        print(error, file=sys.stderr, flush=True)
        control.abort(error.exit_code)


def main(scene: str) -> int:
    placement = detect(os.environ)
    try:
        control = connect(placement)
    except ConfigError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    {"values": exchange_values, "late": wait_for_one_that_never_comes}[scene](control, placement)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
