"""Section environment: what `distxcept doctor` finds, one row for each area."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from distxcept.doctor import worst_status
from distxcept.doctor.examination import examine
from distxcept.doctor.finding import Finding
from distxcept.doctor.gpu import AREA as GPU_AREA
from distxcept.prove.context import Context
from distxcept.prove.machine import Machine, other_users
from distxcept.prove.rows import Row, Status, measured

SECTION = "environment"


def steps(context: Context) -> int:
    return 1


def run(context: Context) -> Iterator[Row]:
    yield devices_row(context.machine)
    if context.machine.on_gpu:
        yield users_row(context.machine)
    findings = examine(os.environ, report=context.machine.probe)
    yield from judge(findings, on_gpu=context.machine.on_gpu)
    context.tick()


def devices_row(machine: Machine) -> Row:
    return measured(f"{SECTION}.devices", "devices", machine.devices, note=str(machine), **devices(machine))


def users_row(machine: Machine) -> Row:
    """Pure. A warning: nothing that is guaranteed depends on it."""
    users = other_users(machine.cards)
    what = "others on the cards when prove started"
    if not users:
        return measured(f"{SECTION}.others", what, 0, note="ok")
    note = f"{'; '.join(users)}. Figures of speed, links and memory are not those of a free card"
    return measured(f"{SECTION}.others", what, len(users), note=note)


def devices(machine: Machine) -> dict[str, Any]:
    """For prove.json."""
    return {
        "kind": machine.kind,
        "number": machine.devices,
        "cores": machine.cores,
        "cards": [
            {
                "name": card.name,
                "driver": card.driver_version,
                "compute_capability": card.compute_capability,
                "memory_total_bytes": card.memory_total_bytes,
                "memory_free_bytes": card.memory_free_bytes,
                "utilisation_percent": card.utilisation_percent,
            }
            for card in machine.cards
        ],
    }


def judge(findings: Sequence[Finding], *, on_gpu: bool) -> list[Row]:
    """Pure. A problem fails the area: training will not run. A warning does not break a guarantee.

    Where the CPU is proved, what keeps a GPU from training is only told: the user may have hidden the cards.
    """
    rows = []
    for area, group in groupby(sorted(findings, key=lambda one: one.area), key=lambda one: one.area):
        members = list(group)
        told = [one for one in members if one.status != "ok"]
        note = "; ".join(f"{one.text}{f' ({one.remedy})' if one.remedy else ''}" for one in told)
        what = f"doctor: {area}"
        data = {
            "findings": [{"status": one.status, "text": one.text, "remedy": one.remedy} for one in members]
        }
        counts = on_gpu or area != GPU_AREA
        status: Status = "failed" if counts and worst_status(members) == "problem" else "measured"
        rows.append(
            Row(f"{SECTION}.{area.lower().replace(' ', '_')}", what, status, note=note or "ok", data=data)
        )
    return rows
