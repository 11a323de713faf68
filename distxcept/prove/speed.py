"""Section speed: images per second against Keras, by precision and jit, and where the time of an update goes.

Started as a child too, so that it can be ended with all of its programs: python -m distxcept.prove.speed RACE.json
"""

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distxcept.cluster.compute import GPU_GROWTH
from distxcept.prove import quiet
from distxcept.prove.cases import nested
from distxcept.prove.children import python
from distxcept.prove.context import Context, answers
from distxcept.prove.machine import Machine
from distxcept.prove.race import contestants
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, Result, say, take_turns
from distxcept.prove.rows import Row, failed, measured

SECTION = "speed"
ROUNDS = {True: 3, False: 5}
TURN_SECONDS = {True: 1.5, False: 4.0}
"""Both by `quick`."""
SECONDS_QUICK, SECONDS_FULL = 150.0, 700.0
PRECISION_WORDS = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Entry:
    """A contestant and the variant in which it runs: float32, tf32, float16, …, with _jit after it where XLA compiles."""

    who: str
    """distxcept, fit or loop."""
    variant: str
    contestant: Contestant


def setting_of(machine: Machine, *, quick: bool) -> Setting:
    """The same for all contestants."""
    if not machine.on_gpu:
        return Setting(71, 8, width=0.125, classes=10) if quick else Setting(128, 16, classes=1000)
    free = min((card.memory_free_bytes or 0 for card in machine.cards), default=0) / 2**30
    batch = 64 if free >= 30 else 32 if free >= 14 else 16 if free >= 8 else 8
    return Setting(299, batch, classes=1000)


def entries(machine: Machine, *, quick: bool) -> list[Entry]:
    """Pure. Ours first, in each variant."""
    if not machine.on_gpu:
        return _variant("float32")
    plain = "tf32" if machine.tf32 else "float32"
    found = _variant(plain, tf32="on" if machine.tf32 else "auto")
    if quick:
        return found + _variant("float16", "mixed_float16", peers=0)
    if machine.tf32:
        found += _variant("float32", tf32="off", peers=1)
    found += _variant("float16", "mixed_float16") + _variant("bfloat16", "mixed_bfloat16", peers=1)
    found += _variant(f"{plain}_jit", tf32="on" if machine.tf32 else "auto", jit=True, peers=0)
    found += _variant("float16_jit", "mixed_float16", jit=True, peers=0)
    return found


def _variant(
    name: str, precision: str = "float32", *, tf32: str = "auto", jit: bool = False, peers: int = 2
) -> list[Entry]:
    overrides = [f"precision={precision}", f"engine.jit={'on' if jit else 'off'}"]
    options = ["--precision", precision, "--tf32", tf32]
    overrides += [f"engine.tf32={tf32}"] * (tf32 != "auto")
    found = [
        Entry("distxcept", name, contestants.ours(*overrides)),
        Entry("fit", name, contestants.keras_fit("auto", *options)),
        Entry("loop", name, contestants.loop(*options)),
    ]
    return found[: 1 + peers]


def steps(context: Context) -> int:
    return 2


def run(context: Context) -> Iterator[Row]:
    folder = context.folder_of(SECTION)
    setting = setting_of(context.machine, quick=context.quick)
    asked = folder / "race.json"
    machine = {"kind": context.machine.kind, "capabilities": context.machine.capabilities}
    asked.write_text(json.dumps({"machine": machine, "quick": context.quick, "setting": asdict(setting)}))
    seconds = context.limit(SECONDS_QUICK, SECONDS_FULL)
    ended = context.children.run(SECTION, python("distxcept.prove.speed", asked), seconds=seconds)
    context.tick()
    results = [answer for answer in answers(ended.stdout) if "who" in answer]
    if ended.code != 0:
        yield failed(f"{SECTION}.race", "images a second", ended.why)
    yield from judge(results, str(setting))
    yield from phases(context, folder, setting)
    context.tick()


def judge(results: Sequence[Mapping[str, Any]], setting: str) -> Iterator[Row]:
    """Pure. Speeds, and ours against each of the others in the same variant."""
    ours = {one["variant"]: one for one in results if one["who"] == "distxcept"}
    names = {"distxcept": "distxcept", "fit": "Keras fit", "loop": "hand-written loop"}
    for one in results:
        id, what = (
            f"{SECTION}.{one['who']}_{one['variant']}",
            f"{names[one['who']]}, {one['variant'].replace('_', ' ')}",
        )
        if why := one["failure"]:
            yield failed(id, what, why) if one["who"] == "distxcept" else measured(id, what, None, note=why)
            continue
        mine = ours.get(one["variant"], {})
        note = setting
        if one["who"] != "distxcept" and mine and not mine["failure"]:
            note = f"distxcept is {ratio(mine, one):.2f} × as fast"
        figures = {"rounds": one["speeds"], "peak_bytes": one["peak_bytes"]}
        yield measured(id, what, round(statistics.median(one["speeds"]), 2), "images/s", note, **figures)


def ratio(ours: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Pure. The median over the rounds, since what disturbs a round disturbs both."""
    return statistics.median(a / b for a, b in zip(ours["speeds"], other["speeds"], strict=False))


def phases(context: Context, folder: Path, setting: Setting) -> Iterator[Row]:
    """Where the time of an update on all devices goes."""
    count = context.machine.devices
    keys = {
        "run.updates": 1,
        "model.image_size": setting.image_size,
        "model.width": setting.width,
        "data.train": {"kind": "synthetic", "classes": setting.classes, "samples": setting.batch * count},
        "data.augment": None,
        "batch.global": setting.batch * count,
        "batch.virtual": setting.batch,
        "batch.micro": setting.batch,
    }
    ended = quiet.start(context, folder, "phases", nested(keys), seconds=context.limit(100, 200))
    told = next((answer for answer in answers(ended.stdout) if "update_seconds" in answer), None)
    if told is None:
        yield failed(f"{SECTION}.update", "time of an update, by phase", ended.why or "it said nothing")
        return
    yield from judge_phases(told, count)


def judge_phases(told: Mapping[str, Any], devices: int) -> Iterator[Row]:
    """Pure. Reduce and apply are timed on their own; the rest of the update is forward and backward."""
    whole, reduce, apply = (told[f"{name}_seconds"] * 1e3 for name in ("update", "reduce", "apply"))
    where = f"on {devices} device{'s' * (devices > 1)}"
    yield measured(f"{SECTION}.update", f"an update {where}", round(whole, 2), "ms")
    rest = max(0.0, whole - reduce - apply)
    for name, value in (("forward_backward", rest), ("reduce", reduce), ("apply", apply)):
        what = f"{name.replace('_', ' and ')} of the update"
        yield measured(f"{SECTION}.{name}", what, round(value, 2), "ms", f"{value / whole:.0%} of the update")
    if told.get("idle_part") is not None:
        note = "part of the time in which no operation runs on the device that waits most"
        yield measured(
            f"{SECTION}.idle", "idle gaps of the update", round(100 * told["idle_part"], 1), "%", note
        )


def main(asked: Mapping[str, Any]) -> None:
    """The race itself. On a GPU each contestant runs alone, since a frozen one keeps its memory."""
    capabilities = tuple(tuple(one) for one in asked["machine"]["capabilities"])
    machine = Machine(asked["machine"]["kind"], 1, capabilities=capabilities)
    quick, setting = asked["quick"], Setting(**asked["setting"])
    listed = entries(machine, quick=quick)
    groups = [[one] for one in listed] if machine.on_gpu else [listed]
    for group in groups:
        results = take_turns(
            [_growing(one.contestant) if machine.on_gpu else one.contestant for one in group],
            setting.of_everybody,
            rounds=ROUNDS[quick],
            turn_seconds=TURN_SECONDS[quick],
            notice=say,
        )
        for one, result in zip(group, results, strict=True):
            print(json.dumps(as_json(one, result)), flush=True)


def _growing(contestant: Contestant) -> Contestant:
    """One that takes the memory it needs, and not all of the card: the figure is then its own."""
    return replace(contestant, environ={**contestant.environ, GPU_GROWTH: "true"})


def as_json(entry: Entry, result: Result) -> dict[str, Any]:
    speeds = [turn.images_per_second for turn in result.turns]
    failure = result.failure or ("" if speeds else "it did not run")
    peak = result.peak_bytes if speeds else None
    return {
        "who": entry.who,
        "variant": entry.variant,
        "speeds": speeds,
        "failure": failure,
        "peak_bytes": peak,
    }


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
