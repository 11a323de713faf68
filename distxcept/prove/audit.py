"""Section audit: the traced update, operation by operation.

Started as a child too: python -m distxcept.prove.audit DEVICES
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from distxcept.prove.children import python
from distxcept.prove.context import Context, answers
from distxcept.prove.rows import Row, Status, failed, skipped

SECTION = "audit"
MODULE = "distxcept.doctor.audit"
WHAT = "kernels, copies, waits and traces of the update"
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
    )
    told = [answer for answer in answers(ended.stdout) if "id" in answer]
    if ended.code != 0 or not told:
        yield failed(f"{SECTION}.update", WHAT, ended.why or "it said nothing")
    yield from (Row(**answer) for answer in told)
    context.tick()


def run_audit(devices: int) -> list[Row]:
    """Eager, in a process of its own, since it fixes the devices."""
    found: Any = import_module(MODULE).audit_update(devices)
    return judge(list(found.problems), list(found.rows()))


def judge(problems: list[str], rows: list[Any]) -> list[Row]:
    """Pure."""
    data: Mapping[str, Any] = {"rows": rows, "problems": problems}
    status: Status = "broken" if problems else "held"
    return [Row(f"{SECTION}.update", WHAT, status, len(problems), 0, "problems", "; ".join(problems), data)]


if __name__ == "__main__":
    from distxcept.cluster.tensorflow_import import import_tensorflow

    import_tensorflow()
    for row in run_audit(int(sys.argv[1])):
        print(json.dumps(asdict(row), default=str), flush=True)
