"""Section memory: the estimate against measurement, and 20 updates with the largest plan that is accepted.

The epoch is not a multiple of the global batch, so one update in five is short and padded. The trials of plans are
optional: without them the largest plan by the estimate is run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distxcept.prove.cases import nested
from distxcept.prove.children import Ended, distxcept
from distxcept.prove.context import Context, write_config
from distxcept.prove.recovery import ran_out
from distxcept.prove.rows import Row, failed, measured, skipped, true
from distxcept.report.runs import read_lines

SECTION = "memory"
UPDATES, UPDATES_PER_EPOCH = 20, 5
VIRTUAL_GPU, VIRTUAL_CPU = 32, 4
CPU_LIMIT_MIB = {True: 1000, False: 1200}
"""By `quick`. On a CPU one device is tried: logical CPUs share the memory of one process."""
QUICK_GPU_LIMIT_MIB = 2048
"""The largest plan of the small model would not come near the edge of a large card. The full form takes all of the card."""
MOST_BLOCKS = 64
"""Virtual batches of a device in the config that is planned."""
SECONDS_QUICK, SECONDS_FULL = 150.0, 420.0
RUN_SECONDS_QUICK, RUN_SECONDS = 60.0, 240.0
"""The trials leave this much time for the updates with the largest plan."""
WHAT = f"{UPDATES} updates with the largest accepted plan, short and padded ones among them"


def base(context: Context) -> dict[str, Any]:
    on_gpu, quick = context.machine.on_gpu, context.quick
    virtual = VIRTUAL_GPU if on_gpu else VIRTUAL_CPU
    devices = context.machine.devices if on_gpu else 1
    whole = virtual * MOST_BLOCKS * devices
    keys: dict[str, Any] = {
        "run.updates": UPDATES,
        "run.seed": 3,
        "run.log_every": 1,
        "run.telemetry_every": None,
        "run.writers": [],
        "model.image_size": 299 if on_gpu and not quick else 128,
        "model.width": 1.0 if on_gpu and not quick else 0.25,
        "model.middle_blocks": 2 if quick else 8,
        "data.train": {"kind": "synthetic", "classes": 10, "samples": whole - 1},
        "data.augment": None,
        "batch.global": whole,
        "batch.virtual": virtual,
        "engine.devices": devices,
        "memory.remat": "off",
        "checkpoint.every_minutes": None,
        "checkpoint.best_metric": None,
    }
    if on_gpu and not quick:
        return keys
    return {**keys, "memory.limit": f"{QUICK_GPU_LIMIT_MIB if on_gpu else CPU_LIMIT_MIB[quick]}MiB"}


def steps(context: Context) -> int:
    return 2


def run(context: Context) -> Iterator[Row]:
    folder = context.folder_of(SECTION)
    file = write_config(folder / "config.yaml", nested(base(context)))
    # On a GPU trials take too long for the quick form, and the estimate has a wide margin there.
    tries = not (context.quick and context.machine.on_gpu)
    planned, ended = plan(context, file, probe=tries)
    if planned is None and tries:
        yield without_trials(ended)
        planned, ended = plan(context, file, probe=False)
    context.tick()
    if planned is None:
        yield failed(f"{SECTION}.plan", "distxcept plan", _why(ended))
        return
    yield from trial_rows(planned)
    largest = largest_accepted(planned["candidates"])
    if largest is None:
        yield failed(f"{SECTION}.largest", WHAT, f"no plan fits into {planned['device']['name']}")
        return
    micro, replicas = largest["micro_batch"], planned["batch"]["replicas"]
    whole = micro * replicas
    samples = whole * UPDATES_PER_EPOCH - whole // 2 - 1
    data = json.dumps({"kind": "synthetic", "classes": 10, "samples": samples})
    overrides = [f"batch.global={whole}", f"batch.micro={micro}", f"data.train={data}"]
    place = ["run.name=largest", f"run.dir={folder}", "run.resume=never"]
    command = distxcept("train", file, "-q", *place, *overrides)
    ended = context.children.run(f"{SECTION}-largest", command, seconds=_seconds(context))
    events, metrics = (read_lines(folder / "largest" / f"{name}.jsonl") for name in ("events", "metrics"))
    context.tick()
    yield from judge(planned, largest, ended, events, metrics)


def _seconds(context: Context) -> float:
    return context.limit(SECONDS_QUICK, SECONDS_FULL)


def _why(ended: Ended) -> str:
    return ended.why or "it printed no JSON"


def without_trials(ended: Ended) -> Row:
    """Pure. Nothing is guaranteed of the trials, so want of time only skips them; a command that broke has failed."""
    row = skipped if ended.unfinished else failed
    return row(f"{SECTION}.trials", "trials of memory plans", _why(ended))


def plan(context: Context, file: Path, *, probe: bool) -> tuple[dict[str, Any] | None, Ended]:
    """The JSON of `distxcept plan`, with trials if `probe`; None if it printed none."""
    command = distxcept("plan", file, "--json", *["--probe"] * probe)
    environ = {"XDG_CACHE_HOME": str(file.parent / "cache")}  # trials are made now, not read
    ended = context.children.run(
        f"{SECTION}-{'trials' if probe else 'plan'}",
        command,
        seconds=_seconds(context),
        environ=environ,
        leave_seconds=context.limit(RUN_SECONDS_QUICK, RUN_SECONDS) if probe else 0.0,
    )
    try:
        return json.loads(ended.stdout), ended
    except ValueError:
        return None, ended


def largest_accepted(candidates: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Pure. Of the plans that fit; where trials were made, of those that were tried."""
    fitting = [one for one in candidates if one["fits"]]
    tried = [one for one in fitting if (one.get("measured") or {}).get("fits")]
    return max(tried or fitting, key=lambda one: one["micro_batch"], default=None)


def estimate_row(
    name: str, planned: Mapping[str, Any], candidate: Mapping[str, Any], peak: int, replicas: int
) -> Row:
    """Pure. `peak` is that of a card; on the host it is that of a process with so many replicas, TensorFlow included."""
    estimate = candidate["total_bytes"]
    if planned["device"]["kind"] == "cpu":
        estimate = replicas * estimate + planned["batch"]["replicas"] * planned["device"]["own_bytes"]
    what = f"measured / estimated memory, micro batch {candidate['micro_batch']}, {name.replace('_', ' ')}"
    note = f"measured {peak / 2**20:,.0f} MiB, estimated {estimate / 2**20:,.0f} MiB"
    figures = {"peak_bytes": peak, "estimate_bytes": estimate, "micro_batch": candidate["micro_batch"]}
    return measured(f"{SECTION}.{name}", what, round(peak / estimate, 3), note=note, **figures)


def trial_rows(planned: Mapping[str, Any]) -> Iterator[Row]:
    """Pure. Each trial is a process with one replica."""
    for one in planned["candidates"]:
        trial = one.get("measured") or {}
        if trial.get("peak_bytes"):
            yield estimate_row(f"trial_{one['micro_batch']}", planned, one, trial["peak_bytes"], 1)


def judge(
    planned: Mapping[str, Any],
    candidate: Mapping[str, Any],
    ended: Ended,
    events: Sequence[Mapping[str, Any]],
    metrics: Sequence[Mapping[str, Any]],
) -> Iterator[Row]:
    """Pure. The plan has to do all updates without running out of memory."""
    done = max((one.get("update", 0) for one in metrics), default=0)
    note = f"micro batch {candidate['micro_batch']}, {planned['device']['name']}"
    if ended.unfinished:
        yield failed(f"{SECTION}.largest", WHAT, f"ended after {done} updates: {ended.why}; {note}")
        return
    if ended.code != 0:
        note = f"ended after {done} updates: {ended.why}; {note}"
    elif ran_out(events):
        note = f"it ran out of memory and recovered with a smaller plan; {note}"
    elif done < UPDATES:
        note = f"only {done} updates; {note}"
    holds = ended.code == 0 and not ran_out(events) and done >= UPDATES
    yield true(f"{SECTION}.largest", WHAT, holds, note, micro_batch=candidate["micro_batch"], updates=done)
    peak = max((one.get("peak_memory") or 0 for one in metrics), default=0)
    if peak:
        yield estimate_row("largest_run", planned, candidate, peak, planned["batch"]["replicas"])
