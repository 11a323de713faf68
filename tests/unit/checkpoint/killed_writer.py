"""Ends the writer at each of its file operations in turn, and looks at what is left: killed_writer.py FOLDER

Prints one line of JSON: operations, and what went wrong. A process of its own, because it forks, and a process with
threads should not. Every operation is stopped before it happens; of a write, half has happened.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from small_snapshots import save

from distxcept.checkpoint.store import Store

SAVES = 7
KEEP = 2
OPERATIONS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "listdir", "scandir")


class Counter:
    """Counts file operations; ends the process at number `last`."""

    def __init__(self, last: int | None):
        self.count, self.last = 0, last
        for name in OPERATIONS:
            setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name, real):
        def operation(*arguments, **options):
            self.count += 1
            if self.count == self.last:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os._exit(9)
            # The process dies, not the machine: what was written stays.
            return None if name == "fsync" else real(*arguments, **options)

        return operation


def write(folder: Path, last: int | None, told: int) -> Counter:
    """Tells the number of each save that is complete."""
    real_write = os.write
    counter = Counter(last)
    for update in range(1, SAVES + 1):
        save(folder, update, keep=KEEP, best=update in (2, 5))
        real_write(told, bytes([update]))
    return counter


def completed_before(folder: Path, last: int) -> int:
    """Runs the writer in a child that ends at operation `last`."""
    listen, told = os.pipe()
    child = os.fork()
    if child == 0:
        write(folder, last, told)
        os._exit(0)
    os.close(told)
    saves = b""
    while part := os.read(listen, 100):
        saves += part
    os.close(listen)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9, f"operation {last} was not reached"
    return saves[-1] if saves else 0


def examine(folder: Path, completed: int) -> str | None:
    """What is wrong with what is left; None if nothing is."""
    store = Store(folder)
    found = store.choose().snapshot
    if completed and (found is None or found.update < completed):
        return f"save {completed} was complete, but {found and found.update} is the newest"
    if found is not None and not (found.tensors()["weights/a"] == found.update).all():
        return f"update {found.update} holds other values"
    best = 5 if completed >= 5 else 2 if completed >= 2 else None
    if best is not None and (store.best() is None or not store.path(store.best()).is_dir()):
        return f"the best is gone after save {completed}"
    # The next start: cleans up, goes on, saves.
    store.clean()
    start = found.update if found else 0
    store.go_on_from(start)
    save(folder, start + 1, keep=KEEP)
    left = {path.name for path in store.folder.iterdir()}
    snapshots = {name for name in left if name.startswith("update-")}
    if left - snapshots - {"latest.json", "best.json"} or len(snapshots) > KEEP + 1:
        return f"leftovers: {sorted(left)}"
    return None if store.choose().snapshot.update == start + 1 else "the next save is not the newest"


def main(folder: Path) -> None:
    os.fsync = lambda descriptor: None
    listen, told = os.pipe()
    child = os.fork()
    if child == 0:
        counter = write(folder / "whole", None, told)
        os.write(told, b"#%d" % counter.count)
        os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    operations = int(os.read(listen, 1000).partition(b"#")[2])
    wrong = {}
    for last in range(1, operations + 1):
        place = folder / str(last)
        problem = examine(place, completed_before(place, last))
        if problem:
            wrong[last] = problem
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps({"operations": operations, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
