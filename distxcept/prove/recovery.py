"""Section recovery: a training that runs out of memory continues in smaller micro steps, to the same weights.

memory.limit lies between what the smallest and the largest micro batch need by the estimate. The training starts with
the largest, under `distxcept launch`, since it may have to continue in a new process.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distxcept.prove.cases import FLOAT64_BOUND, nested
from distxcept.prove.children import Ended, distxcept, python
from distxcept.prove.context import Context, last_tensors, write_config
from distxcept.prove.equality import Tensors, difference
from distxcept.prove.rows import Row, bounded, failed, skipped
from distxcept.report.runs import read_lines

SECTION = "recovery"
VIRTUAL, PER_DEVICE = 8, 2
"""Samples of a virtual batch, and virtual batches of a device: one smaller plan exists."""
PARTS = {"first": 0.5, "too_little": 0.8, "never_ran_out": 0.25}
"""Where the limit lies between the smallest and the largest need, by what came of the try before."""
TRIES = 2
DOES_NOT_FIT = 4
SECONDS_QUICK, SECONDS_FULL = 150.0, 300.0


@dataclass(frozen=True)
class Scarce:
    """A training that has too little memory."""

    engine: str
    devices: int
    ranks: int

    @property
    def what(self) -> str:
        number = {"single": "1 device", "mirrored": f"{self.devices} mirrored devices"}.get(self.engine)
        return f"out of memory and recovery, {number or f'{self.ranks} Horovod ranks'}"


def scarce(context: Context) -> list[Scarce]:
    """In the quick form only the engine that uses all devices of one process."""
    count = context.machine.devices
    single, mirrored, horovod = (
        Scarce("single", 1, 1),
        Scarce("mirrored", count, 1),
        Scarce("horovod", 1, count),
    )
    if count == 1:
        return [single]
    if context.quick:
        return [mirrored]
    return [single, mirrored, *([horovod] if context.machine.no_ranks is None else [])]


def base(devices: int) -> dict[str, Any]:
    whole = VIRTUAL * PER_DEVICE * devices
    return {
        "run.updates": 2,
        "run.seed": 3,
        "run.log_every": 1,
        "run.telemetry_every": None,
        "run.writers": [],
        "model.image_size": 224,
        "model.width": 0.25,
        "model.middle_blocks": 0,
        "model.dropout": 0.3,
        "data.train": {"kind": "synthetic", "classes": 5, "samples": whole - 2},
        "data.augment": None,
        "batch.global": whole,
        "batch.virtual": VIRTUAL,
        "optimizer.momentum": 0.9,
        "precision": "float64",
        "engine.threads": 1,
        "engine.check_every": 1,
        "memory.remat": "off",
        "checkpoint.every_minutes": None,
        "checkpoint.best_metric": None,
    }


def steps(context: Context) -> int:
    return 1 + len(scarce(context))


def run(context: Context) -> Iterator[Row]:
    folder = context.folder_of(SECTION)
    file = write_config(folder / "config.yaml", nested(base(context.machine.devices)))
    with ThreadPoolExecutor(max_workers=4) as pool:
        calm = pool.submit(run_calm, context, folder)
        tried = {one: pool.submit(run_scarce, context, one, file, folder) for one in scarce(context)}
        found = {one: future.result() for one, future in tried.items()}
        why = calm.result()
    reference = last_tensors(folder / "calm")
    for one, (ended, limit) in found.items():
        run_folder = folder / one.engine
        yield judge(
            one,
            ended,
            limit,
            read_lines(run_folder / "events.jsonl"),
            last_tensors(run_folder),
            reference,
            why,
        )
    if context.machine.devices > 1 and context.machine.no_ranks and not context.quick:
        yield skipped(
            f"{SECTION}.horovod", "out of memory and recovery, Horovod ranks", context.machine.no_ranks
        )


def run_calm(context: Context, folder: Path) -> str:
    """With enough memory and the smallest micro batch. Returns why it failed."""
    keys = {**base(context.machine.devices), "batch.micro": VIRTUAL}
    asked = folder / "calm.json"
    asked.write_text(
        json.dumps({"devices": 1, "cases": [{"name": "calm", "devices": 1, "config": nested(keys)}]})
    )
    command = python("distxcept.prove.runs", asked, folder)
    why = context.children.run(f"{SECTION}-calm", command, seconds=_seconds(context)).why
    context.tick()
    return why


def run_scarce(context: Context, one: Scarce, file: Path, folder: Path) -> tuple[Ended, int]:
    """The last try, and its limit in bytes."""
    part = PARTS["first"]
    for last in range(1, TRIES + 1):
        overrides = [f"run.name={one.engine}", f"run.dir={folder}", "run.resume=never"]
        engine = [f"engine.devices={one.devices}", f"engine.name={one.engine}"]
        ended, need = plan(context, one, file, engine)
        if need is None:
            return ended, 0
        whole, limit = max(need), limit_bytes(need, part)
        overrides += [*engine, f"batch.micro={whole}", f"memory.limit={limit // 2**20}MiB"]
        command = distxcept("launch", file, "--np", one.ranks, "--max-restarts", 3, "-q", *overrides)
        ended = context.children.run(f"{SECTION}-{one.engine}-{last}", command, seconds=_seconds(context))
        happened = ran_out(read_lines(folder / one.engine / "events.jsonl"))
        if ended.code == 0 and happened:
            break
        part = PARTS["too_little" if ended.code == DOES_NOT_FIT else "never_ran_out"]
        if ended.code not in (0, DOES_NOT_FIT):
            break
    context.tick()
    return ended, limit


def _seconds(context: Context) -> float:
    return context.limit(SECONDS_QUICK, SECONDS_FULL)


def plan(
    context: Context, one: Scarce, file: Path, engine: Sequence[str]
) -> tuple[Ended, Mapping[int, int] | None]:
    """What a device needs by the estimate, by micro batch."""
    world = ["--world", one.ranks] if one.ranks > 1 else []
    command = distxcept("plan", file, *world, "--json", *engine, "memory.limit=64GiB", "memory.remat=off")
    ended = context.children.run(f"{SECTION}-plan-{one.engine}", command, seconds=60)
    try:
        return ended, needs(json.loads(ended.stdout))
    except (ValueError, KeyError):
        return ended, None


def needs(planned: Mapping[str, Any]) -> dict[int, int]:
    """Pure. What memory.limit has to be for each micro batch: on the host it is the whole process' share."""
    device = planned["device"]
    own = device["own_bytes"] + device["reserve_bytes"] if device["kind"] == "cpu" else 0
    return {one["micro_batch"]: own + one["total_bytes"] for one in planned["candidates"] if not one["remat"]}


def limit_bytes(need: Mapping[int, int], part: float) -> int:
    """Pure."""
    least, most = need[min(need)], need[max(need)]
    return round(least + part * (most - least))


def ran_out(events: Sequence[Mapping[str, Any]]) -> bool:
    """Pure. Whether memory ran out: raised by TensorFlow, or by the end of a process that the supervisor restarted."""
    return any(
        event.get("kind") == "out_of_memory"
        or (event.get("kind") == "supervisor" and event.get("action") in ("restart", "shrink"))
        for event in events
    )


def judge(
    one: Scarce,
    ended: Ended,
    limit: int,
    events: Sequence[Mapping[str, Any]],
    ours: Tensors | None,
    reference: Tensors | None,
    why_no_reference: str,
) -> Row:
    """Pure."""
    id = f"{SECTION}.{one.engine}"
    told = [
        event.get("message", "") for event in events if event.get("kind") in ("out_of_memory", "supervisor")
    ]
    data: dict[str, Any] = {"limit_bytes": limit, "events": told}
    if ended.unfinished:
        return failed(id, one.what, ended.why, **data)
    if ended.code == DOES_NOT_FIT and ran_out(events):
        return failed(id, one.what, f"no plan fitted into {limit // 2**20} MiB; {ended.why}", **data)
    if ended.code != 0:
        return Row(id, one.what, "broken", note=f"it did not recover: {ended.why}", data=data)
    if not ran_out(events):
        return failed(id, one.what, f"memory never ran out with memory.limit={limit // 2**20}MiB", **data)
    if ours is None or reference is None:
        return failed(id, one.what, why_no_reference or "it left no whole snapshot", **data)
    if ours.keys() != reference.keys():
        return failed(id, one.what, "the undisturbed training has other tensors", **data)
    worst = max(difference(ours[name], reference[name]) for name in ours)
    note = f"{len([m for m in told if 'ran out' in m])} times out of memory at {limit // 2**20} MiB a device"
    return bounded(id, one.what, worst, FLOAT64_BOUND, note=note, **data)
