"""Section speed: where the time of an update goes, and images per second against Keras, by precision and jit.

Nothing here is guaranteed, so no row of it is broken or failed. The race has the rest of the time; who is left out is said.
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
from distxcept.prove.children import Ended, python
from distxcept.prove.context import Context, answers
from distxcept.prove.machine import Machine
from distxcept.prove.race import contestants
from distxcept.prove.race.ours import LONG
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, Result, say, take_turns
from distxcept.prove.rows import Row, measured, skipped

SECTION = "speed"
ROUNDS = {True: 3, False: 5}
TURN_SECONDS = {True: 1.5, False: 4.0}
"""Both by `quick`, for contestants that take turns."""
ROUNDS_ALONE, TURN_SECONDS_ALONE = 3, 1.5
RACE_SECONDS = 3600.0
"""More than the deadline of the whole proof, unless --minutes is large."""
PHASE_SECONDS_QUICK, PHASE_SECONDS_FULL = 100.0, 240.0
NAMES = {"distxcept": "distxcept", "fit": "Keras fit", "loop": "hand-written loop"}


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
    """Pure. The most important first, since time may not be enough for all: ours, Keras fit and the loop in each variant.

    Without XLA nobody uses it, and with it everybody. Keras' own choice for fit is to use it.
    """
    if not machine.on_gpu:
        return _variant("float32")
    plain, tf32 = ("tf32", "on") if machine.tf32 else ("float32", "auto")
    found = _variant(plain, tf32=tf32) + _variant("float16", "mixed_float16")
    if quick:
        return found
    if machine.tf32:
        found += _variant("float32", tf32="off")
    found += _variant("bfloat16", "mixed_bfloat16")
    return (
        found
        + _variant(f"{plain}_jit", tf32=tf32, jit=True)
        + _variant("float16_jit", "mixed_float16", jit=True)
    )


def _variant(name: str, precision: str = "float32", *, tf32: str = "auto", jit: bool = False) -> list[Entry]:
    switch = "on" if jit else "off"
    overrides = [f"precision={precision}", f"engine.jit={switch}"]
    overrides += [f"engine.tf32={tf32}"] * (tf32 != "auto")
    options = ["--precision", precision, "--tf32", tf32]
    return [
        Entry("distxcept", name, contestants.ours(*overrides)),
        Entry("fit", name, contestants.keras_fit(switch, *options)),
        Entry("loop", name, contestants.loop("--jit", switch, *options)),
    ]


def steps(context: Context) -> int:
    return 2


def run(context: Context) -> Iterator[Row]:
    """The phases first: they are short, and the race is cut where the time ends."""
    folder = context.folder_of(SECTION)
    setting = setting_of(context.machine, quick=context.quick)
    yield from phases(context, folder, setting)
    context.tick()
    yield from race(context, folder, setting)
    context.tick()


def race(context: Context, folder: Path, setting: Setting) -> Iterator[Row]:
    asked = folder / "race.json"
    machine = {"kind": context.machine.kind, "capabilities": context.machine.capabilities}
    asked.write_text(json.dumps({"machine": machine, "quick": context.quick, "setting": asdict(setting)}))
    ended = context.children.run(SECTION, python("distxcept.prove.speed", asked), seconds=RACE_SECONDS)
    results = [answer for answer in answers(ended.stdout) if "who" in answer]
    yield from judge(results, str(setting))
    told = {(one["who"], one["variant"]) for one in results}
    for one in entries(context.machine, quick=context.quick):
        if (one.who, one.variant) not in told:
            yield not_measured(*_named(one.who, one.variant), ended)


def _named(who: str, variant: str) -> tuple[str, str]:
    """Id of the row, and what it is."""
    return f"{SECTION}.{who}_{variant}", f"{NAMES[who]}, {variant.replace('_', ' ')}"


def not_measured(id: str, what: str, ended: Ended) -> Row:
    """Pure. Skipped for want of time; what else went wrong is told without a figure."""
    if ended.too_late:
        return skipped(id, what, ended.why)
    return measured(id, what, None, note=f"not measured: {ended.why or 'it said nothing'}")


def judge(results: Sequence[Mapping[str, Any]], setting: str) -> Iterator[Row]:
    """Pure. Speeds, and ours against each of the others in the same variant."""
    ours = {one["variant"]: one for one in results if one["who"] == "distxcept"}
    for one in results:
        id, what = _named(one["who"], one["variant"])
        if why := one["failure"]:
            yield measured(id, what, None, note=f"not measured: {why}")
            continue
        mine = ours.get(one["variant"], {})
        note = setting
        if one["who"] != "distxcept" and mine and not mine["failure"]:
            note = f"distxcept is {ratio(mine, one):.2f} × as fast"
            note += "" if one["took_turns"] else ", each measured alone"
        figures = {"rounds": one["speeds"], "peak_bytes": one["peak_bytes"]}
        yield measured(id, what, round(statistics.median(one["speeds"]), 2), "images/s", note, **figures)


def ratio(ours: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Pure. Of two that took turns the median over the rounds, since what disturbs a round disturbs both."""
    if ours["took_turns"] and other["took_turns"]:
        return statistics.median(a / b for a, b in zip(ours["speeds"], other["speeds"], strict=False))
    return statistics.median(ours["speeds"]) / statistics.median(other["speeds"])


def phase_config(machine: Machine, setting: Setting) -> dict[str, Any]:
    """Pure. The update of the race, on all devices, as part of a run that is never ended."""
    whole = setting.batch * machine.devices
    keys = {
        "run.updates": LONG,
        "model.image_size": setting.image_size,
        "model.width": setting.width,
        # Twice an update, so that the one that is repeated does not end an epoch.
        "data.train": {"kind": "synthetic", "classes": setting.classes, "samples": 2 * whole},
        "data.augment": None,
        "batch.global": whole,
        "batch.virtual": setting.batch,
        "batch.micro": setting.batch,
        "memory.remat": "off",
        "checkpoint.every_minutes": None,
        "checkpoint.best_metric": None,
    }
    return nested(keys)


def phases(context: Context, folder: Path, setting: Setting) -> Iterator[Row]:
    """Where the time of an update on all devices goes."""
    seconds = context.limit(PHASE_SECONDS_QUICK, PHASE_SECONDS_FULL)
    ended = quiet.start(context, folder, "phases", phase_config(context.machine, setting), seconds=seconds)
    told = next((answer for answer in answers(ended.stdout) if "update_seconds" in answer), None)
    if told is None:
        yield not_measured(f"{SECTION}.update", "time of an update, by phase", ended)
        return
    yield from judge_phases(told, context.machine.devices)


def judge_phases(told: Mapping[str, Any], devices: int) -> Iterator[Row]:
    """Pure. Reduce and apply are timed on their own; forward and backward are the rest of an update without overlap."""
    names = ("update", "apart", "reduce", "apply")
    in_loop, whole, reduce, apply = (told[f"{name}_seconds"] * 1e3 for name in names)
    where = f"on {devices} device{'s' * (devices > 1)}"
    note = f"{whole:.4g} ms where the reduction waits for the end of the backward pass" * (devices > 1)
    yield measured(
        f"{SECTION}.update", f"an update {where}, as the loop runs it", round(in_loop, 2), "ms", note
    )
    rest = max(0.0, whole - reduce - apply)
    for name, value in (("forward_backward", rest), ("reduce", reduce), ("apply", apply)):
        what = f"{name.replace('_', ' and ')} of the update"
        part = f"{value / whole:.0%} of an update{' without overlap' * (devices > 1)}"
        yield measured(f"{SECTION}.{name}", what, round(value, 2), "ms", part)
    if told.get("idle_part") is not None:
        note = "part of the time in which no operation runs on the device that waits most"
        yield measured(
            f"{SECTION}.idle", "idle gaps of the loop's updates", round(100 * told["idle_part"], 1), "%", note
        )


def main(asked: Mapping[str, Any]) -> None:
    """The race itself. On a GPU each contestant runs alone, since one that waits for its turn keeps its memory."""
    capabilities = tuple(tuple(one) for one in asked["machine"]["capabilities"])
    machine = Machine(asked["machine"]["kind"], 1, capabilities=capabilities)
    quick, setting = asked["quick"], Setting(**asked["setting"])
    listed = entries(machine, quick=quick)
    groups = [[one] for one in listed] if machine.on_gpu else [listed]
    for group in groups:
        results = take_turns(
            [_growing(one.contestant) if machine.on_gpu else one.contestant for one in group],
            setting.of_everybody,
            rounds=ROUNDS_ALONE if machine.on_gpu else ROUNDS[quick],
            turn_seconds=TURN_SECONDS_ALONE if machine.on_gpu else TURN_SECONDS[quick],
            notice=say,
        )
        for one, result in zip(group, results, strict=True):
            print(json.dumps(as_json(one, result, took_turns=not machine.on_gpu)), flush=True)


def _growing(contestant: Contestant) -> Contestant:
    """One that takes the memory it needs, and not all of the card: the figure is then its own."""
    return replace(contestant, environ={**contestant.environ, GPU_GROWTH: "true"})


def as_json(entry: Entry, result: Result, *, took_turns: bool) -> dict[str, Any]:
    speeds = [turn.images_per_second for turn in result.turns]
    failure = result.failure or ("" if speeds else "it did not run")
    peak = result.peak_bytes if speeds else None
    return {
        "who": entry.who,
        "variant": entry.variant,
        "speeds": speeds,
        "failure": failure,
        "peak_bytes": peak,
        "took_turns": took_turns,
    }


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
