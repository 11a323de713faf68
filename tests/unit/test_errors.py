import pytest

from distxcept.errors import ConfigError, first_line, one_line


@pytest.mark.parametrize(
    ("error", "plain", "named"),
    [
        (ConfigError("a\n  b"), "a b", "ConfigError: a b"),
        (ValueError(" a\tb "), "a b", "ValueError: a b"),
        (MemoryError(), "MemoryError", "MemoryError"),
        (KeyError("\n"), "'\\n'", "KeyError: '\\n'"),
    ],
)
def test_one_line(error, plain, named):
    assert (one_line(error), one_line(error, named=True)) == (plain, named)


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("\n a\n  b"), "a"), (MemoryError(), "MemoryError"), (ValueError(" "), "ValueError")],
)
def test_first_line(error, line):
    assert first_line(error) == line
