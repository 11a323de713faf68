"""Which peer is lost, judged from its status file and, on this host, from its process. No threads in here.

    its file says failed          → lost, and it has told why
    its process is gone           → lost (seen on its own host within a second)
    its file has not changed for `timeout` seconds although ours could be written → lost: stopped, cut off, or its host died
    its file says done or stopped → not lost

Clocks of different hosts are never compared: what counts is when this process saw the file change.
"""

import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from distxcept.cluster.status import PEER_LOST, RankStatus, read_status

READ_AGAIN = 0.1
"""Part of the timeout after which a peer's file is read again: a shared file system serves many ranks."""


@dataclass(frozen=True)
class Peer:
    rank: int
    host: str
    pid: int

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


@dataclass(frozen=True)
class Loss:
    rank: int | None
    """Who was lost, where that is known."""
    message: str
    """Who, where, why, at which update, and the path of its log."""
    told: bool
    """The lost rank has named its own error to the user."""


@dataclass
class _Seen:
    read: float | None = None
    """When its file was last read, by our own steady clock."""
    status: RankStatus | None = None
    time: float | None = None
    """What the peer's last status said of itself."""
    since: float = 0.0
    """When that status was first seen, by our own steady clock."""
    update: int | None = None
    alive: bool = False
    """Its process was seen on this host, so that it can be missed there."""


class PeerWatch:
    def __init__(self, run_folder: Path, peers: list[Peer], timeout: float):
        self._folder, self._timeout = run_folder, timeout
        self.peers = peers
        self._host = socket.gethostname()
        self._seen = {peer.rank: _Seen() for peer in peers}
        self._looked: float | None = None

    def look(self, now: float, *, own_status_written: bool = True) -> Loss | None:
        """The first loss among the peers. `now` is a steady clock; call it at least every few seconds."""
        if self._looked is None or now - self._looked > self._timeout / 2:
            # We were held up ourselves; what the others did meanwhile we cannot know.
            for seen in self._seen.values():
                seen.since = now
        self._looked = now
        losses = [
            loss for peer in self.peers if (loss := self._judge(peer, now, own_status_written)) is not None
        ]
        # A rank that names its own error comes before one that only died, and that before one that is silent.
        return min(losses, key=lambda loss: not loss.told, default=None)

    def forget(self) -> None:
        """The next look reads every file, however fresh: something has happened."""
        for seen in self._seen.values():
            seen.read = None

    def first_witness(self, lost: int | None) -> int | None:
        """The lowest peer that can tell of the loss, or has told of it: every one but those who came to grief."""
        for peer in self.peers:
            status = self._status(peer)
            ended = status is not None and status.ended
            witness = status.kind == PEER_LOST if status and ended else not self._is_gone(peer)
            if peer.rank != lost and witness:
                return peer.rank
        return None

    def _judge(self, peer: Peer, now: float, own_status_written: bool) -> Loss | None:
        seen = self._seen[peer.rank]
        gone = self._is_gone(peer)  # before the file: what it wrote at its end is there then
        if gone or seen.read is None or now - seen.read >= self._timeout * READ_AGAIN:
            seen.status, seen.read = self._status(peer), now
        status = seen.status
        if status is not None:
            seen.update = status.update
            if status.time != seen.time:
                seen.time, seen.since = status.time, now
            if status.state == "failed":
                return self._told(peer, status)
            if status.ended:
                return None
        if gone:
            return self._silent(peer, "its process is gone")
        if status is not None and own_status_written and now - seen.since > self._timeout:
            return self._silent(peer, f"no sign of life for {self._timeout:g} s{self._state(peer)}")
        return None

    def _status(self, peer: Peer) -> RankStatus | None:
        """Of this peer, not of a process that had its rank in an earlier job."""
        status = read_status(self._folder, peer.rank)
        return status if status is not None and (status.host, status.pid) == (peer.host, peer.pid) else None

    def _is_gone(self, peer: Peer) -> bool:
        if peer.host != self._host:
            return False
        try:
            alive = psutil.Process(peer.pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            alive = False
        except psutil.Error:
            return False
        seen = self._seen[peer.rank]
        seen.alive = seen.alive or alive
        return seen.alive and not alive

    def _state(self, peer: Peer) -> str:
        try:
            stopped = peer.host == self._host and psutil.Process(peer.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            stopped = False
        return ", its process is stopped" if stopped else ""

    def _told(self, peer: Peer, status: RankStatus) -> Loss:
        if status.kind == PEER_LOST and status.message:
            return Loss(status.lost, status.message, told=False)
        reason = f"failed with {status.kind}: {status.message}"
        return Loss(peer.rank, f"{peer} {reason}{self._place(peer)}", told=True)

    def _silent(self, peer: Peer, reason: str) -> Loss:
        return Loss(peer.rank, f"{peer} is lost: {reason}{self._place(peer)}", told=False)

    def _place(self, peer: Peer) -> str:
        update = self._seen[peer.rank].update
        last = f"its last known update was {update}" if update else "no update of it is known"
        return f"; {last}; its log is {self._folder / 'logs' / f'rank-{peer.rank}.log'}"
