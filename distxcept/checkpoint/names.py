"""Names of snapshots on the command line and in the config.

    RUN                 the newest whole snapshot of the run
    RUN:best            the best one by checkpoint.best_metric
    RUN:latest          the newest, as RUN
    RUN:update=1200     the one after 1200 updates
    RUN/checkpoints/update-00001200   the folder itself

RUN is the path of a run folder, or its name below runs/. Imports no TensorFlow.
"""

from dataclasses import dataclass
from pathlib import Path

from distxcept.checkpoint.snapshot import MANIFEST, Snapshot, SnapshotError, open_snapshot, snapshot_name
from distxcept.checkpoint.store import Store
from distxcept.errors import ConfigError

FORMS = "RUN, RUN:best, RUN:update=1200, or the folder of a snapshot"


@dataclass(frozen=True)
class Found:
    """The snapshot that a name stands for."""

    snapshot: Snapshot
    run_folder: Path | None
    """None where the snapshot does not lie in a run folder."""
    passed_over: tuple[str, ...] = ()
    """Why newer ones were not taken."""


def find_snapshot(name: str) -> Found:
    """ConfigError, in one line, where there is no such snapshot or it is damaged."""
    run, selector = _split(name)
    folders = [place for place in places(run) if place.is_dir()]
    if not folders:
        raise ConfigError(f"{no_run(run)}; give {FORMS}")
    path = next((folder for folder in folders if _is_snapshot(folder) or Store(folder).updates()), folders[0])
    if _is_snapshot(path):
        if selector:
            raise ConfigError(f"{name}: {path} is one snapshot, and {selector} chooses among those of a run")
        return Found(_open(name, path), _run_of(path))
    return _of_run(name, path, selector)


def places(run: str) -> tuple[Path, Path]:
    """Where a run of this name may lie: it is a path, or a name below runs/."""
    return Path(run).expanduser(), Path("runs") / run


def no_run(run: str) -> str:
    """What to say of a name that is none of a run."""
    return f"there is no run {run}; `distxcept runs` lists those that there are"


def weights_path(spec: str | None) -> str | None:
    """`model.weights` with the name of a snapshot, RUN:best or RUN:update=1200, turned into the path of its folder."""
    if spec is None or not _split(spec)[1]:
        return spec
    return str(find_snapshot(spec).snapshot.path)


def _is_snapshot(folder: Path) -> bool:
    return (folder / MANIFEST).exists() or folder.name.startswith("update-")


def _split(name: str) -> tuple[str, str]:
    """A folder's own name may have a colon in it."""
    head, colon, selector = name.rpartition(":")
    if (
        colon
        and not any(place.exists() for place in places(name))
        and (selector in ("best", "latest") or selector.startswith("update="))
    ):
        return head, selector
    return name, ""


def _of_run(name: str, run_folder: Path, selector: str) -> Found:
    store = Store(run_folder)
    if not store.updates():
        raise ConfigError(f"{name}: {run_folder} has no snapshot yet")
    if selector in ("", "latest"):
        choice = store.choose()
        if choice.snapshot is None:
            raise ConfigError(f"{name}: no snapshot is whole: {'; '.join(choice.passed_over)}")
        return Found(choice.snapshot, run_folder, tuple(choice.passed_over))
    if selector == "best":
        update = store.best()
        if update is None:
            raise ConfigError(
                f"{name}: no snapshot is named best: the run has not been validated; {_there(store)}"
            )
    else:
        update = _number(name, selector.removeprefix("update="))
    if update not in store.updates():
        raise ConfigError(f"{name}: there is no {snapshot_name(update)}; {_there(store)}")
    return Found(_open(name, store.path(update)), run_folder)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ConfigError(f"{name}: {text!r} is no number of updates; give {FORMS}")
    return int(text)


def _there(store: Store) -> str:
    return f"there are {', '.join(f'update={update}' for update in reversed(store.updates()))}"


def _open(name: str, path: Path) -> Snapshot:
    try:
        return open_snapshot(path)
    except SnapshotError as error:
        raise ConfigError(f"{name}: this snapshot cannot be used: {error}") from error


def _run_of(path: Path) -> Path | None:
    parent = path.resolve().parent
    return parent.parent if parent.name == "checkpoints" else None
