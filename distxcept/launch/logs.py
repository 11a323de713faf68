"""RUN/logs/rank-K.log: everything that rank K printed, over all attempts."""

from collections.abc import Iterable
from pathlib import Path

TAIL_BYTES = 16 * 1024


def log_path(run_folder: Path, rank: int) -> Path:
    return run_folder / "logs" / f"rank-{rank}.log"


def log_sizes(run_folder: Path, ranks: Iterable[int]) -> dict[int, int]:
    return {rank: _size(log_path(run_folder, rank)) for rank in ranks}


def log_tails(run_folder: Path, since: dict[int, int]) -> dict[int, str]:
    """The end of what each rank wrote since its log had the given size."""
    return {rank: _tail(log_path(run_folder, rank), start) for rank, start in since.items()}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tail(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(start, _size(path) - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
