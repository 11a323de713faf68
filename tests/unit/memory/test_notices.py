"""Notices when they are true, and not otherwise."""

import pytest

from distxcept.memory.creep import LOOK_EVERY, LOOKS, MIN_POINTS
from distxcept.memory.notices import OTHERS_SAMPLES, WARM_UP_UPDATES, WINDOW, Judge
from distxcept.memory.nvml import GpuProcess
from tests.unit.memory.samples import GIB, OWN_PID, card, sample

MIB = 2**20
OWN = GpuProcess(OWN_PID, 9 * GIB, "python3")
START = 1000


def judge(larger=lambda moment, free: None, **options):
    return Judge(own_pids={OWN_PID}, larger=larger, host_free_bytes=lambda: 8 * GIB, **options)


def said(samples, judge):
    return [notice for one in samples for notice in judge.look(one)]


def training(make_card, number=WINDOW, *, first=START + WARM_UP_UPDATES, **options):
    """A first sample that starts the count, then `number` samples after the warm-up."""
    return [sample(START, card())] + [sample(first + k, *make_card(k), **options) for k in range(number)]


def kinds(notices):
    return [(notice.kind, notice.subject) for notice in notices]


HOT = dict(throttling=("thermal_software",), temperature_celsius=91, sm_clock_mhz=900)
CAPPED = dict(throttling=("power_cap",), sm_clock_mhz=1100)


@pytest.mark.parametrize(
    ("make_card", "expected"),
    [
        (lambda k: [card(**HOT)], [("thermal_throttling", "GPU 0")]),
        (lambda k: [card(), card(1, **HOT)], [("thermal_throttling", "GPU 1")]),
        (lambda k: [card(**(HOT if k % 4 == 0 else {}))], [("thermal_throttling", "GPU 0")]),
        (lambda k: [card(**(HOT if k % 8 == 0 else {}))], []),
        (
            lambda k: [card(throttling=("hardware_slowdown", "thermal_hardware"))],
            [("thermal_throttling", "GPU 0")],
        ),
        (lambda k: [card(throttling=("hardware_slowdown",))], [("hardware_slowdown", "GPU 0")]),
        (lambda k: [card(throttling=("hardware_slowdown", "power_brake"))], [("power_throttling", "GPU 0")]),
        (lambda k: [card(**CAPPED)], [("power_throttling", "GPU 0")]),
        # At its power limit, as every card under load, but near its full clock rate.
        (lambda k: [card(throttling=("power_cap",), sm_clock_mhz=1600)], []),
        (lambda k: [card(throttling=("power_cap",), sm_clock_mhz=None)], []),
        (
            lambda k: [
                card(throttling=("application_clocks", "sync_boost", "display_clocks"), sm_clock_mhz=900)
            ],
            [],
        ),
        (lambda k: [card(temperature_celsius=91)], []),
        (lambda k: [], []),
    ],
)
def test_throttling(make_card, expected):
    assert kinds(said(training(make_card), judge())) == expected


@pytest.mark.parametrize(
    "samples",
    [
        training(lambda k: [card(**HOT)], WINDOW - 1),
        training(lambda k: [card(**HOT)], phase="evaluate"),
        training(lambda k: [card(**HOT)], first=START + WARM_UP_UPDATES - WINDOW),
    ],
    ids=["too early", "not training", "warming up"],
)
def test_not_judged_yet(samples):
    assert said(samples, judge()) == []


def test_messages_name_figures_and_remedies():
    (notice,) = said(training(lambda k: [card(**HOT)]), judge())
    assert notice.message == (
        "GPU 0 is too hot (91 °C) and runs at 50% of its clock rate: give it more air, or less to burn: "
        "nvidia-smi -i 0 -pl WATTS"
    )
    (notice,) = said(training(lambda k: [card(**CAPPED)]), judge())
    assert "power limit of 350 W and runs at 61% of its clock rate" in notice.message


def test_said_once():
    observer = judge()
    assert len(said(training(lambda k: [card(**HOT)], 10 * WINDOW), observer)) == 1
    assert kinds(said([sample(9000 + k, card(**CAPPED)) for k in range(WINDOW)], observer)) == [
        ("power_throttling", "GPU 0")
    ]


OTHER = GpuProcess(77, 3 * GIB, "blender")
DESKTOP = GpuProcess(78, 200 * MIB, "Xorg")


@pytest.mark.parametrize(
    ("processes", "found"),
    [
        ([(OWN,)] * 4, None),
        ([(OWN, OTHER)] * 4, "GPU 0 is shared with blender (pid 77, 3.0 GiB): end it"),
        ([(OWN, OTHER)] * (OTHERS_SAMPLES - 1), None),
        # Gone before anybody could have done anything about it.
        ([(OWN,), (OWN, OTHER), (OWN, OTHER), (OWN,), (OWN, OTHER)], None),
        ([(OWN, DESKTOP)] * 4, None),
        ([(OWN, GpuProcess(79, None, "unknown size"))] * 4, None),
        ([(OWN, GpuProcess(80, 9 * GIB, "nvidia-cuda-mps-server"))] * 4, None),
        ([(OWN, GpuProcess(81, 3 * GIB, None))] * 4, "shared with a process (pid 81, 3.0 GiB)"),
        # In a container the driver counts otherwise: the one process there is ours.
        ([(GpuProcess(55, 9 * GIB, None),)] * 4, None),
        (
            [(GpuProcess(55, 9 * GIB, None), OTHER)] * 4,
            "2 processes are on GPU 0, one of them this training: a process",
        ),
        ([()] * 4, None),
    ],
)
def test_other_processes(processes, found):
    notices = said([sample(1, card(processes=one)) for one in processes], judge())
    if found is None:
        assert notices == []
    else:
        assert kinds(notices) == [("shared_card", "GPU 0")]
        assert found in notices[0].message


def fits(micro=24, steps=2, room=4 * GIB):
    return lambda moment, free: (micro, steps) if free >= room else None


IDLE = dict(utilisation_percent=40)


@pytest.mark.parametrize(
    ("make_card", "options", "larger", "expected"),
    [
        (lambda k: [card(**IDLE)], {}, fits(), True),
        (lambda k: [card(**IDLE), card(1, **IDLE)], {}, fits(), True),
        (lambda k: [card(**IDLE)], {}, lambda moment, free: None, False),
        # The emptier moments do not help: at its peak the card has no room.
        (lambda k: [card(**IDLE, memory_free_bytes=(1 if k == 5 else 14) * GIB)], {}, fits(), False),
        (lambda k: [card(**IDLE), card(1, **IDLE, memory_free_bytes=GIB)], {}, fits(), False),
        (lambda k: [card(**IDLE)], dict(data_wait=0.3), fits(), False),
        (lambda k: [card(**IDLE), card(1)], {}, fits(), False),
        (lambda k: [card(utilisation_percent=95 if k % 3 else 10)], {}, fits(), False),
        (lambda k: [card(utilisation_percent=None)], {}, fits(), False),
        (lambda k: [card(**IDLE, memory_free_bytes=None)], {}, fits(), False),
        (lambda k: [card(**IDLE)], dict(phase="evaluate"), fits(), False),
        (lambda k: [], {}, fits(), False),
    ],
)
def test_low_utilisation(make_card, options, larger, expected):
    notices = said(training(make_card, **options), judge(larger))
    assert kinds(notices) == [("low_utilisation", "cards")] * expected
    if expected:
        assert (
            "busy only 40 % of the time with micro batch 8, and 24 would fit: set batch.micro=24"
            in notices[0].message
        )


def test_an_update_that_lasts_for_minutes_is_not_judged():
    stuck = [sample(START, card()), *[sample(START + 50, card(**IDLE)) for _ in range(WINDOW)]]
    assert said(stuck, judge(fits())) == []


def leaking(number, *, host=0, device=0, first=START, **options):
    return [
        sample(
            first + k,
            card(),
            held=3 * GIB + k * host,
            device_held=(2 * GIB + k * device,),
            **options,
        )
        for k in range(number)
    ]


LONG = MIN_POINTS + (LOOKS + 1) * LOOK_EVERY


@pytest.mark.parametrize(
    ("options", "number", "settling", "expected"),
    [
        (dict(host=2 * MIB), 50 + LONG, 50, ["host"]),
        (dict(device=2 * MIB), 50 + LONG, 50, ["GPU 0"]),
        (dict(host=2 * MIB, device=2 * MIB), 50 + LONG, 50, ["host", "GPU 0"]),
        (dict(), 50 + 3 * LONG, 50, []),
        # The first epoch fills a cache in memory.
        (dict(host=2 * MIB), 50 + LONG, 300, []),
        (dict(host=2 * MIB), MIN_POINTS, 50, []),
    ],
)
def test_creeping(options, number, settling, expected):
    notices = said(leaking(number, **options), judge(settling_updates=settling))
    assert kinds(notices) == [("memory_creeps", subject) for subject in expected]


def test_creeping_says_how_long_it_lasts():
    (notice,) = said(leaking(50 + LONG, host=2 * MIB), judge())
    assert notice.message.startswith(
        "memory of this process on the host grows by 2.0 MiB an update without an end"
    )
    assert "what is free lasts for 4,096 more" in notice.message


def test_another_plan_is_no_leak():
    """After running out of memory the run goes on with a smaller micro batch, and all is counted anew."""
    samples = leaking(LONG, host=2 * MIB, micro=8) + leaking(LONG, host=2 * MIB, micro=4, first=START + LONG)
    assert said(samples, judge(settling_updates=100)) == []
