"""The other end of a contestant: one turn after the other."""

from types import SimpleNamespace

from distxcept.prove.race.serve import Alone, ProcessMemory, Step, _measured


def test_a_turn_counts_its_own_memory_only():
    happened = []
    memory = SimpleNamespace(reset=lambda: happened.append("reset"), read=lambda: len(happened))
    step = Step(lambda steps: happened.append("run") or 2.0, images=1, group=Alone(), memory=memory)
    assert _measured(step, 3) == (2.0, 2)
    assert happened == ["reset", "run"]
    ProcessMemory().reset()
    assert ProcessMemory().read() > 2**20
