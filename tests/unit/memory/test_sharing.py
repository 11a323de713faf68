"""Who else is on a card: the same rule before the first update and during the training."""

import pytest

from distxcept.memory.nvml import GpuProcess
from distxcept.memory.sharing import others_on_card, told_at_start
from tests.unit.memory.samples import GIB, OWN_PID, card

OWN = GpuProcess(OWN_PID, 9 * GIB, "python3")
NOTEBOOK = GpuProcess(11, 3 * GIB, "jupyter")
UNKNOWN = GpuProcess(12, 4 * GIB, None)
DESKTOP = GpuProcess(13, GIB // 10, "Xorg")
SERVER = GpuProcess(14, 2 * GIB, "nvidia-cuda-mps-server")
NO_SIZE = GpuProcess(15, None, "python3")


@pytest.mark.parametrize(
    ("processes", "at_work", "others"),
    [
        ([], False, None),
        ([OWN], True, None),
        ([OWN, NOTEBOOK], True, [11]),
        ([NOTEBOOK], False, [11]),
        # The driver may count otherwise than this process: then the only one is the training itself.
        ([NOTEBOOK], True, None),
        ([NOTEBOOK, UNKNOWN], True, [11, 12]),
        ([OWN, DESKTOP, SERVER, NO_SIZE], True, None),
        ([DESKTOP], False, None),
    ],
)
def test_others(processes, at_work, others):
    shared = others_on_card([card(processes=tuple(processes))], {OWN_PID}, at_work=at_work)
    assert (shared and [one.pid for one in shared.others]) == others


def test_only_who_stays():
    looks = [card(processes=(OWN, NOTEBOOK)), card(processes=(OWN,)), card(processes=(OWN, NOTEBOOK))]
    assert others_on_card(looks, {OWN_PID}, at_work=True) is None
    assert others_on_card([looks[0], looks[2]], {OWN_PID}, at_work=True)


def test_sentences_at_the_start():
    cards = [card(0, processes=(DESKTOP,)), card(1, processes=(NOTEBOOK, UNKNOWN))]
    (sentence,) = told_at_start(cards, {OWN_PID})
    assert sentence == (
        "GPU 1 is shared with jupyter (pid 11, 3.0 GiB), a process (pid 12, 4.0 GiB); 14.0 GiB are left, and the plan is "
        "made for those"
    )
    unsure = others_on_card([cards[1]], {OWN_PID}, at_work=True)
    assert str(unsure).startswith("2 processes are on GPU 1, one of them this training: jupyter")
