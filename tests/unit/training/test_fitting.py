"""Running out of memory where this process cannot mend it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from distxcept.config.schema import Config
from distxcept.engines.single import SingleEngine
from distxcept.errors import DistxceptError, DoesNotFitError, LostForMemoryError
from distxcept.memory.memory_plan import MemoryPlan, read_memory_plan
from distxcept.memory.planning import build_plan
from distxcept.training import fitting as fitting_module
from distxcept.training.fitting import Fitting


class Told:
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.plans: list[tuple[int, bool]] = []

    def happened(self, kind: str, message: str, **details) -> None:
        self.messages.append(message)

    def planned(self, plan, *, remat: bool) -> None:
        self.plans.append((plan.micro_batch, remat))


def fitting(
    folder: Path, *, micro: int = 32, remat: bool = False, allowed: str = "auto", saved=None
) -> Fitting:
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 2}},
            "batch": {"global": 32, "virtual": 8, "micro": micro},
            "memory": {"remat": allowed},
        }
    )
    state = SimpleNamespace(
        digests=lambda: [b"one"], engine=SingleEngine("CPU:0"), is_consistent=lambda: False
    )
    training = SimpleNamespace(
        config=config,
        plan=build_plan(config, 64, 1),
        remat=remat,
        update=SimpleNamespace(state=state),
        engine=state.engine,
    )
    save = (lambda: None) if saved is None else lambda: saved.append("saved")
    return Fitting(training, folder, Told(), settle=lambda: None, save=save)


def lose() -> None:
    raise LostForMemoryError("while the weights were changing")


def lost_in(folder: Path) -> None:
    with pytest.raises(LostForMemoryError):
        fitting(folder).run(1, lose)


def test_it_leaves_a_smaller_plan_behind(tmp_path):
    lost_in(tmp_path)
    left = read_memory_plan(tmp_path)
    assert left is not None and (left.micro, left.remat) == (16, False)


def test_a_lost_card_is_no_want_of_memory(tmp_path, monkeypatch):
    """TensorFlow cancels the update of the other devices in both cases."""
    lost = DistxceptError("GPU 1 was lost")
    monkeypatch.setattr(fitting_module, "lost_card_error", lambda engine, places: lost)
    with pytest.raises(DistxceptError) as caught:
        fitting(tmp_path).run(1, lose)
    assert caught.value is lost
    assert read_memory_plan(tmp_path) is None


def test_a_disk_that_takes_nothing_hides_nothing(tmp_path):
    lost_in(tmp_path / "none")


def outcomes(failures: int):
    """An update that runs out of memory so often."""
    left = [SimpleNamespace(failed=True)] * failures + [SimpleNamespace(failed=False)]
    return lambda: left.pop(0)


def test_smaller_and_smaller_down_to_rematerialisation(tmp_path):
    one = fitting(tmp_path)
    assert not one.run(7, outcomes(3)).failed
    assert one._tell.plans == [(16, False), (8, False), (8, True)]
    assert "set batch.micro=8 memory.remat=on to start so" in one._tell.messages[-1]
    assert one.memory_plan == MemoryPlan(8, True)


@pytest.mark.parametrize(("remat", "allowed"), [(True, "auto"), (False, "off")])
def test_nothing_smaller_is_saved_and_told(tmp_path, remat, allowed):
    saved: list[str] = []
    one = fitting(tmp_path, micro=8, remat=remat, allowed=allowed, saved=saved)
    with pytest.raises(
        DoesNotFitError, match=r"update 7 ran out of memory with micro batch 8.*everything is saved"
    ):
        one.run(7, outcomes(1))
    assert saved == ["saved"]


def test_lost_with_the_smallest_plan_is_no_reason_to_try_it_again(tmp_path):
    one = fitting(tmp_path, micro=8, remat=True)
    with pytest.raises(DoesNotFitError, match=r"no smaller plan.*the last snapshot is intact"):
        one.run(7, lose)
    assert read_memory_plan(tmp_path) is None
