"""Reading a launcher's variables: whole numbers that belong together, or an error that names them."""

from collections.abc import Mapping
from dataclasses import dataclass

from distxcept.errors import ConfigError

REMEDY = "start the job again through one launcher, and set none of these variables by hand"


def contradiction(environ: Mapping[str, str], names: list[str], why: str) -> ConfigError:
    """The error for variables that cannot all be true, with their values (launchers put no secrets in these)."""
    shown = ", ".join(f"{name}={environ[name]}" if name in environ else f"{name} not set" for name in names)
    return ConfigError(f"the launcher's environment contradicts itself: {shown}: {why}; {REMEDY}")


def whole_number(environ: Mapping[str, str], name: str) -> int | None:
    """The variable as a number ≥ 0, or None where it is not set."""
    text = environ.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise contradiction(environ, [name], "expected a whole number of 0 or more")
    return int(text)


@dataclass(frozen=True)
class RankVariables:
    """The four names under which a launcher says who a process is."""

    rank: str
    size: str
    local_rank: str
    local_size: str

    def present(self, environ: Mapping[str, str]) -> bool:
        return self.rank in environ or self.size in environ

    def read(self, environ: Mapping[str, str]) -> tuple[int, int, int, int]:
        """(rank, size, local_rank, local_size), each within its range."""
        rank, size = _rank_within_size(environ, self.rank, self.size)
        local_rank, local_size = _rank_within_size(environ, self.local_rank, self.local_size)
        if local_size > size:
            raise contradiction(
                environ, [self.local_size, self.size], "one host cannot have more tasks than the job"
            )
        return rank, size, local_rank, local_size


def _rank_within_size(environ: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    rank, size = whole_number(environ, rank_name), whole_number(environ, size_name)
    if rank is None or size is None:
        raise contradiction(environ, [rank_name, size_name], "one is of no use without the other")
    if size < 1:
        raise contradiction(environ, [size_name], "a job has at least one task")
    if rank >= size:
        raise contradiction(environ, [rank_name, size_name], f"ranks go from 0 to {size - 1}")
    return rank, size
