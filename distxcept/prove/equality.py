"""Section equality: the same training on other devices, in other micro steps, and again, gives the same weights."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from distxcept.prove import cases
from distxcept.prove.cases import Job, Pair
from distxcept.prove.children import TIME_IS_UP, python
from distxcept.prove.context import Context, answers, last_tensors
from distxcept.prove.race.contestants import in_ranks
from distxcept.prove.rows import Row, bounded, failed, measured, skipped

SECTION = "equality"
SECONDS_QUICK, SECONDS_FULL = 240.0, 600.0

Tensors = Mapping[str, np.ndarray]


def steps(context: Context) -> int:
    return len(cases.jobs(context.machine, quick=context.quick))


def run(context: Context) -> Iterator[Row]:
    """Yields the row of a pair as soon as both of its trainings have ended."""
    folder = context.folder_of(SECTION)
    pairs = cases.pairs(context.machine, quick=context.quick)
    jobs = cases.jobs(context.machine, quick=context.quick)
    ends: dict[str, str | None] = {}
    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        started = [pool.submit(run_job, context, job, folder) for job in jobs]
        for done in as_completed(started):
            ends |= done.result()
            ready = [pair for pair in pairs if {pair.case, pair.reference} <= ends.keys()]
            pairs = [pair for pair in pairs if pair not in ready]
            yield from (judge(pair, ends, _tensors(folder, pair)) for pair in ready)
            context.tick()
    yield from (skipped(f"{SECTION}.{pair.id}", pair.what, why_not_run(pair, context)) for pair in pairs)


def why_not_run(pair: Pair, context: Context) -> str:
    if "horovod" in pair.case:
        return context.machine.no_ranks or "not run"
    return "these cards have no TF32" if pair.case == "tf32" else "left out by --quick"


def run_job(context: Context, job: Job, folder: Path) -> dict[str, str | None]:
    """Why each case of the job failed; None if it did not."""
    asked = folder / f"{job.name}.json"
    listed = [{"name": one.name, "devices": one.devices, "config": one.config()} for one in job.cases]
    asked.write_text(json.dumps({"devices": job.devices, "cases": listed}))
    program = tuple(python("distxcept.prove.runs", asked, folder))
    command = in_ranks(job.ranks, program) if job.ranks > 1 else program
    seconds = context.limit(SECONDS_QUICK, SECONDS_FULL)
    ended = context.children.run(f"{SECTION}-{job.name}", command, seconds=seconds, environ=job.environ)
    told = {answer["case"]: answer["failure"] for answer in answers(ended.stdout) if "case" in answer}
    return {one.name: told.get(one.name, ended.why or "it did not run") for one in job.cases}


def _tensors(folder: Path, pair: Pair) -> tuple[Tensors | None, Tensors | None]:
    return last_tensors(folder / pair.case), last_tensors(folder / pair.reference)


def judge(pair: Pair, ends: Mapping[str, str | None], both: tuple[Tensors | None, Tensors | None]) -> Row:
    """Pure."""
    id = f"{SECTION}.{pair.id}"
    for case, tensors in zip((pair.case, pair.reference), both, strict=True):
        if (why := ends[case]) == TIME_IS_UP and pair.bound is None:
            return skipped(id, pair.what, why)
        if why:
            return failed(id, pair.what, f"{case}: {why}")
        if tensors is None:
            return failed(id, pair.what, f"{case}: it left no whole snapshot")
    ours, theirs = both
    assert ours is not None and theirs is not None
    if ours.keys() != theirs.keys():
        return failed(id, pair.what, "they have other tensors")
    found = {name: difference(ours[name], theirs[name]) for name in ours}
    worst = max(found, key=lambda name: found[name])
    value = found[worst]
    note = pair.note if value == 0.0 else "; ".join(part for part in (f"in {worst}", pair.note) if part)
    if pair.bound is None:
        return measured(id, pair.what, value, note=note)
    return bounded(id, pair.what, value, pair.bound, note=note)


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """max|difference| / max|value| of a tensor; 0 means equal bits."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if ours.tobytes() == theirs.tobytes():
        return 0.0
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return float("inf")
    largest = float(np.max(np.abs(y)))
    apart = float(np.max(np.abs(x - y))) / (largest or 1.0)
    return apart or float(np.finfo(np.float64).tiny)  # zeros of other signs
