"""The most memory since the last reset, of a process and of a card."""

from types import SimpleNamespace

import numpy as np

from distxcept.training import peak as module
from distxcept.training.peak import Peak

MIB = 2**20


def test_of_the_process():
    peak = Peak("CPU:0")
    np.ones(64 * MIB, np.uint8)
    before = peak.read()
    held = peak.reset()
    assert held <= peak.read() < before - 32 * MIB
    np.ones(64 * MIB, np.uint8)
    assert peak.read() > held + 48 * MIB


def test_of_a_card(monkeypatch):
    asked = []
    memory = SimpleNamespace(
        reset_memory_stats=lambda device: asked.append(device),
        get_memory_info=lambda device: {"current": 10, "peak": 30 - 15 * len(asked)},
    )
    monkeypatch.setattr(module, "tf", SimpleNamespace(config=SimpleNamespace(experimental=memory)))
    peak = Peak("GPU:1")
    assert peak.read() == 30
    assert peak.reset() == 10 and asked == ["GPU:1"]
    assert peak.read() == 15
