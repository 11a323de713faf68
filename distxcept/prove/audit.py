"""Section audit: the traced update, operation by operation.

Started as a child too: python -m distxcept.prove.audit DEVICES
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from distxcept.prove.cases import NO_GPU, ONEDNN_OFF
from distxcept.prove.children import python
from distxcept.prove.context import Context, answers
from distxcept.prove.rows import Row, bounded, failed, measured, skipped

SECTION = "audit"
MODULE = "distxcept.doctor.audit"
WHAT = "kernels, copies, operations and traces of the update"
SECONDS_QUICK, SECONDS_FULL = 150.0, 300.0


def steps(context: Context) -> int:
    return 1


def run(context: Context) -> Iterator[Row]:
    if find_spec(MODULE) is None:
        yield skipped(f"{SECTION}.update", WHAT, "not available in this version")
        context.tick()
        return
    ended = context.children.run(
        SECTION,
        python("distxcept.prove.audit", context.machine.devices),
        seconds=context.limit(SECONDS_QUICK, SECONDS_FULL),
        environ={**NO_GPU, **ONEDNN_OFF},  # a graph as GPUs get it
    )
    told = [answer for answer in answers(ended.stdout) if "id" in answer]
    if ended.code != 0 or not told:
        yield failed(f"{SECTION}.update", WHAT, ended.why or "it said nothing")
    yield from (Row(**answer) for answer in told)
    context.tick()


def run_audit(devices: int) -> list[Row]:
    """Eager, in a process of its own, since it fixes the devices. Logical CPUs stand for GPUs."""
    found: Any = import_module(MODULE).audit_update(devices)
    return judge(list(found.problems), list(found.rows()))


def judge(problems: Sequence[str], counted: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Pure. `counted` has `what`, `count` and `most`, which is None where nothing is promised."""
    number = len(problems)
    rows = [bounded(f"{SECTION}.update", WHAT, number, 0, note="; ".join(problems))]
    for one in counted:
        id = f"{SECTION}.{re.sub('[^a-z]+', '_', one['what'].lower()).strip('_')}"
        note = "" if one["most"] is None else f"at most {one['most']}"
        rows.append(measured(id, one["what"], one["count"], note=note))
    return rows


if __name__ == "__main__":
    from distxcept.cluster.tensorflow_import import import_tensorflow

    import_tensorflow()
    for row in run_audit(int(sys.argv[1])):
        print(json.dumps(asdict(row), default=str), flush=True)
