"""What the chief does before the other ranks go on, and what it tells them where it cannot."""

from types import SimpleNamespace

import pytest

from distxcept.checkpoint.snapshot import SnapshotError
from distxcept.errors import ConfigError
from distxcept.training import restore
from distxcept.training.events import Observer


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


@pytest.mark.parametrize(("resume", "expected"), [("never", ["anew", "others"]), ("auto", ["others"])])
def test_beginning_anew_is_told_before_another_rank_goes_on(tmp_path, resume, expected):
    """Later it could take away what that rank has written."""
    order = []

    class Hears(Observer):
        def begins_anew(self):
            order.append("anew")

    state = SimpleNamespace(variables=dict)
    training = SimpleNamespace(
        engine=SimpleNamespace(
            is_chief=True,
            exchange=lambda message: order.append("others") or [message],
            broadcast=lambda variables: None,
        ),
        config=SimpleNamespace(run=SimpleNamespace(resume=resume)),
        update=SimpleNamespace(state=state),
    )
    assert restore.restore(training, tmp_path, Hears(), False).update == 0
    assert order == expected
