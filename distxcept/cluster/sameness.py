"""Ranks that would train something else are refused at the start, with what differs."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import distxcept
from distxcept import __version__

MOST_NAMED = 5


def code_version() -> str:
    """Version and a digest of the package's own files: two hosts may have the same number and not the same code."""
    folder = Path(distxcept.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:12]})"


def disagreement(ranks: Sequence[Mapping[str, Any]]) -> str | None:
    """The first rank that differs from rank 0, and in what. Each has host, code and config, a nested mapping."""
    first = ranks[0]
    for number, one in enumerate(ranks):
        if one["code"] != first["code"]:
            return (
                f"rank {number} on {one['host']} runs distxcept {one['code']}, but rank 0 on {first['host']} "
                f"{first['code']}; install the same code on every host"
            )
        changed = sorted(_differing("", first["config"], one["config"]))
        if changed:
            more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
            return (
                f"rank {number} on {one['host']} has another config than rank 0 on {first['host']} "
                f"({'; '.join(changed[:MOST_NAMED])}{more}); give every rank the same file and overrides"
            )
    return None


def data_disagreement(seen: Sequence[str]) -> str | None:
    """By rank, in words, what each sees of the training data."""
    for rank, theirs in enumerate(seen):
        if theirs != seen[0]:
            return (
                f"rank {rank} sees other training data than rank 0 ({theirs}, and not {seen[0]}); "
                "give every rank the same files"
            )
    return None


def _differing(prefix: str, first: Any, other: Any) -> list[str]:
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        return [
            line
            for key in first.keys() | other.keys()
            for line in _differing(f"{prefix}.{key}" if prefix else str(key), first.get(key), other.get(key))
        ]
    return [] if first == other else [f"{prefix}: {first} on rank 0, {other} there"]
