"""Reading and writing YAML: scalars of YAML 1.2, lines, and everything that is refused."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distxcept.config.yaml_text import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    YamlProblem,
    dump_yaml,
    parse_yaml,
    shorten,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("12", 12),
        ("-0", 0),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1" + "0" * 39, 10**39),
        ("1" + "0" * 40, 1e40),
        ("9" * 5000, math.inf),
        ("0x" + "f" * 5000, math.inf),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1e999", math.inf),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-11-16", "2026-11-16"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("'1e-5'", "1e-5"),
        ('"true"', "true"),
        ("[1, a, {b: 2.0}]", [1, "a", {"b": 2.0}]),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    data = parse_yaml(text).data
    assert data == value
    assert type(data) is type(value)


def test_nan_is_read_as_a_number():
    assert math.isnan(parse_yaml(".nan").data)


def test_every_key_and_item_has_its_line():
    document = parse_yaml(
        "# head\nrun:\n  seed: 3\n\ndata: {train: {kind: folder,\n  path: x}}\nlist:\n  - a\n  - b\n"
    )
    assert document.lines == {
        ("run",): 2,
        ("run", "seed"): 3,
        ("data",): 5,
        ("data", "train"): 5,
        ("data", "train", "kind"): 5,
        ("data", "train", "path"): 6,
        ("list",): 7,
        ("list", 0): 8,
        ("list", 1): 9,
    }


def bomb(levels: int, width: int) -> str:
    rows = ["a0: &a0 [x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a: given twice, first on line 1"),
        ("a:\n  b: {c: 1, d: 2, c: 3}\n", 2, "a.b.c: given twice, first on line 2"),
        ("a: 1\n'a': 2\n", 2, "given twice"),
        ("a:\n\tb: 1\n", 2, "a tab; indent with spaces"),
        ("a: [1, 2\nb: 3\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("a: 1\n--- \nb: 2\n", 2, "second document"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag"),
        ("a: !!str 5\n", 1, "tag"),
        ("a: !x 5\n", 1, "tag"),
        ("!!set {a, b}\n", 1, "tag"),
        ("? [1, 2]\n: 3\n", 1, "a key must be plain text"),
        ("a: 1\ntrue: 3\n", 2, "no text"),
        ("1.5: 3\n", 1, "no text"),
        ("~: 3\n", 1, "no text"),
        ("a: &x [*x]\n", 1, "inside &x itself"),
        ("a: *x\n", 1, "no &x before it"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        (bomb(12, 10), 5, "more than 10000 values"),
        ("a: 1\nb: " + "[" * 100_000, 2, "nested more than 20 deep"),
        ("".join(f"{' ' * i}k:\n" for i in range(200)), 21, "nested more than 20 deep"),
        ("- " * 1000 + "x", 1, "nested more than 20 deep"),
        ("[" + "0," * MAX_NODES + "]", 1, "more than 10000 values"),
        ("\n".join(f"k{i}: 0" for i in range(MAX_NODES)), 5000, "more than 10000 values"),
        ("#" * (MAX_BYTES + 1), None, "larger than 1024 KiB"),
    ],
)
def test_refused_with_its_line(text, line, words):
    with pytest.raises(YamlProblem) as caught:
        parse_yaml(text)
    assert words in str(caught.value)
    assert caught.value.line == line


def test_aliases_that_deepen_each_other_are_bounded():
    rows = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [[*a{i - 1}]]" for i in range(1, 30)]
    with pytest.raises(YamlProblem, match=f"nested more than {MAX_DEPTH} deep"):
        parse_yaml("\n".join(rows))


def test_each_use_of_an_alias_is_a_copy():
    data = parse_yaml("a: &x {b: 1}\nc: *x\n").data
    data["c"]["b"] = 2
    assert data == {"a": {"b": 1}, "c": {"b": 2}}


plain = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text()
keys = st.text() | st.integers(0, 10**9)
# Lone surrogates are no text that a file could hold.
data = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@given(data)
@example("\x85")
@example({"a\u2028b": "\ufeffc\u2029"})
def test_what_is_dumped_reads_back_the_same(value):
    assert parse_yaml(dump_yaml(value)).data == value


@pytest.mark.parametrize(
    "text", ["1e-5", "0o17", "on", "null", "1.", "+.5", "0x1", "~", "<<", "=", "a: b", "- a"]
)
def test_text_that_looks_like_something_else_stays_text(text):
    assert parse_yaml(dump_yaml({"a": text, text: 1})).data == {"a": text, text: 1}


def test_shorten_is_one_printable_line():
    assert shorten("a\nb\u2028c\x00", 60) == "a�b�c�"
    assert shorten("x" * 100, 10) == "x" * 9 + "…"
