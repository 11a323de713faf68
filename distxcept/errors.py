"""Errors that a user can act on, each with the exit code of the command line.

The message is one line: what happened, where, and how to mend it. The command line prints it without a
traceback (`--debug` shows that). Anything else that escapes is a bug of ours and exits with 1.
"""


class DistxceptError(Exception):
    """Base of every error with a message written for the user."""

    exit_code = 1
    alike = False
    """Every rank of a job comes to it by itself; one of them tells it."""


def on_all_ranks(error: DistxceptError) -> DistxceptError:
    """The same error, known to occur on every rank."""
    error.alike = True
    return error


class SavingError(DistxceptError):
    """Snapshots cannot be written."""


class ConfigError(DistxceptError):
    """Wrong usage or config."""

    exit_code = 2


class DataError(DistxceptError):
    """The data cannot be used."""

    exit_code = 3


class DoesNotFitError(DistxceptError):
    """No plan fits in memory."""

    exit_code = 4


class DivergedError(DistxceptError):
    """Too many non-finite updates in a row."""

    exit_code = 5


class PeerLostError(DistxceptError):
    """A peer was lost, hung, or no longer agrees with the others."""

    exit_code = 6


class LostForMemoryError(PeerLostError):
    """Memory ran out where this process cannot continue. A new one can, with a smaller memory plan."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"memory ran out {where}, so this process cannot continue; run the same command again: it resumes from the "
            "newest snapshot with a smaller memory plan (distxcept launch --max-restarts does so by itself)"
        )


class StopRequested(DistxceptError):
    """Stopped on request with everything saved; the same command goes on."""

    exit_code = 75


def one_line(error: BaseException, *, named: bool = False) -> str:
    """Its message without line breaks, with its kind before it if `named`; the kind alone where there is no message."""
    text, kind = " ".join(str(error).split()), type(error).__name__
    return f"{kind}: {text}" if named and text else text or kind


def first_line(error: BaseException) -> str:
    """Of its message, where the rest is for developers; its kind where there is no message."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
