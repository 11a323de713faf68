"""Renders the sbatch file of a run. Pure.

Values in `#SBATCH` lines are read by sbatch and those below by bash. The former may hold only characters that mean
nothing to either, the latter are quoted. A line break is refused everywhere: it would begin a line of its own. No variable
of the environment is written down.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from distxcept.errors import ConfigError
from distxcept.launch.partitions import parse_minutes

WARNING_SECONDS = 120
"""Before the end of the job's time; a quarter of it for short jobs."""

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+=-]{0,199}")
_PATH = re.compile(r"[A-Za-z0-9_./@+,=-]{1,1000}")
_DEPENDENCY = re.compile(
    r"(?:singleton|after(?:any|ok|notok|corr|burstbuffer)?(?::\d+(?:[_+]\d+)?)+)"
    r"(?:[,?](?:singleton|after(?:any|ok|notok|corr|burstbuffer)?(?::\d+(?:[_+]\d+)?)+))*",
    re.ASCII,
)
_OPTION = re.compile(r"--[a-z][a-z-]{1,60}(?:=[A-Za-z0-9_][A-Za-z0-9_.,:@+=|&*()\[\]/-]{0,199})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Job:
    name: str
    folder: str
    """The run folder, absolute: the job's output goes there."""
    launch: tuple[str, ...]
    """The launcher's argument list, up to CONFIG and overrides."""
    config: str
    overrides: tuple[str, ...] = ()
    nodes: int = 1
    gpus_per_node: int = 0
    ranks_per_node: int = 1
    cpus_per_rank: int | None = None
    """None: as many as the cluster gives by itself."""
    time: str = "08:00:00"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    memory: str | None = None
    dependency: str | None = None
    options: tuple[str, ...] = ()
    """Further options of sbatch's, as --constraint=a100."""
    sweep: tuple[tuple[str, ...], ...] = ()
    """Overrides of each task of an array; empty: no array."""


def render(job: Job) -> str:
    return "\n".join(["#!/bin/bash", *_head(job), "", *_body(job), ""])


def _head(job: Job) -> list[str]:
    minutes = parse_minutes(job.time)
    if not minutes:
        raise ConfigError(f"--time {job.time[:40]!r} is no time; write minutes, HH:MM:SS or D-HH:MM:SS")
    if job.dependency is not None and not _DEPENDENCY.fullmatch(job.dependency):
        raise ConfigError(
            f"--dependency {job.dependency[:80]!r} cannot be read; write afterok:1234 or singleton"
        )
    options = {
        "job-name": _word("run.name", job.name),
        "nodes": str(job.nodes),
        "ntasks-per-node": str(job.ranks_per_node),
        "gpus-per-node": str(job.gpus_per_node) if job.gpus_per_node else None,
        "cpus-per-task": str(job.cpus_per_rank) if job.cpus_per_rank else None,
        "mem": _word("--mem", job.memory),
        "time": job.time,
        "partition": _word("--partition", job.partition),
        "account": _word("--account", job.account),
        "qos": _word("--qos", job.qos),
        "dependency": job.dependency,
        "array": f"1-{len(job.sweep)}" if job.sweep else None,
        "output": output_path(job),
        "open-mode": "append",
        "requeue": "",
        "signal": f"B:USR1@{max(1, min(WARNING_SECONDS, int(minutes * 60 / 4)))}",
    }
    lines = [
        f"#SBATCH --{name}{'=' * bool(value)}{value}" for name, value in options.items() if value is not None
    ]
    for option in job.options:
        if not _OPTION.fullmatch(option):
            raise ConfigError(
                f"--sbatch-option {option[:80]!r} cannot stand in an sbatch file; write --name=value"
            )
        lines.append(f"#SBATCH {option}")
    return lines


def output_path(job: Job) -> str:
    """%j is the job's number; %A_%a that of an array and its task."""
    if not _PATH.fullmatch(job.folder):
        raise ConfigError(
            f"run.dir: {job.folder[:200]!r} has characters that an sbatch file cannot hold; "
            "use letters, digits and ./_@+,=- only"
        )
    return f"{job.folder}/slurm-{'%A_%a' if job.sweep else '%j'}.out"


def _body(job: Job) -> list[str]:
    command = _quoted([*job.launch, "--", job.config])
    if not job.sweep:
        return [f"exec {command} {_quoted(job.overrides)}".rstrip()]
    common = [word for word in job.overrides if not word.startswith("run.name=")]
    tasks = [
        f"    {number}) overrides=({_quoted([f'run.name={job.name}-{number}', *common, *overrides])}) ;;"
        for number, overrides in enumerate(job.sweep, 1)
    ]
    return [
        'case "$SLURM_ARRAY_TASK_ID" in',
        *tasks,
        "    *) exit 2 ;;",
        "esac",
        f'exec {command} "${{overrides[@]}}"',
    ]


def _word(key: str, value: str | None) -> str | None:
    if value is not None and not _WORD.fullmatch(value):
        raise ConfigError(f"{key} {value[:80]!r} has characters that an sbatch file cannot hold")
    return value


def _quoted(words: Sequence[str]) -> str:
    for word in words:
        if _CONTROL.search(word):
            raise ConfigError(f"{word[:80]!r} holds a line break or another control character")
    return shlex.join(words)


def read_sweep(text: str) -> tuple[tuple[str, ...], ...]:
    """A line a task, overrides separated by spaces; empty lines and `#` comments do not count."""
    lines = [line.strip() for line in text.split("\n")]
    tasks = tuple(tuple(line.split()) for line in lines if line and not line.startswith("#"))
    for number, task in enumerate(tasks, 1):
        for word in task:
            if "=" not in word or word.startswith("-"):
                raise ConfigError(
                    f"--array: task {number}: {word[:80]!r} is no override; write key.path=value"
                )
    if not tasks:
        raise ConfigError("--array: the file names no overrides")
    return tasks
