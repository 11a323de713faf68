"""What a chief that cannot go on tells the other ranks."""

from types import SimpleNamespace

import pytest

from distxcept.checkpoint.snapshot import SnapshotError
from distxcept.errors import ConfigError
from distxcept.training import restore


def test_a_snapshot_that_cannot_be_read_ends_all_ranks_alike(monkeypatch, tmp_path):
    class Damaged:
        def __init__(self, *_):
            pass

        def run(self):
            raise SnapshotError("update-3: a tensor is damaged")

    monkeypatch.setattr(restore, "_Restoring", Damaged)
    sent = []
    engine = SimpleNamespace(is_chief=True, exchange=lambda message: sent.append(message) or [message])
    with pytest.raises(ConfigError, match="update-3: a tensor is damaged"):
        restore.restore(SimpleNamespace(engine=engine), tmp_path, None, False)
    assert b"damaged" in sent[0]
