"""The two ways in which a build ends early."""

from distxcept.errors import DistxceptError


class MissingError(DistxceptError):
    """Something the build needs is not there. The message says what, and how to get it."""


class CompileError(DistxceptError):
    """The compilation failed. The message is the one cause found in the log, and what to do."""
