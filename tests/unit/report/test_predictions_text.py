"""Predictions in each of the formats, with names that try to break them."""

import csv
import json
from dataclasses import dataclass

import pytest

from distxcept.report.plain_text import plain_line, shortened
from distxcept.report.predictions_text import WRITERS


@dataclass(frozen=True)
class Answer:
    path: str
    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    error: str | None = None


GOOD = Answer("a.jpg", ("cat", "dog"), (0.75, 0.25))
ODD = Answer('b,"\n\udcff.jpg', ("a,b", "c\x1b[2J"), (0.9, 0.1))
BAD = Answer("c.jpg", error="empty file")


def lines(form: str) -> list[str]:
    return list(WRITERS[form]([GOOD, ODD, BAD], 2, ("cat", "dog", "a,b", "c\x1b[2J", "a" * 100)))


def test_table():
    first, second = lines("table")
    gap = " " * 21
    assert first == f" 75.0% cat{gap}   25.0% dog{gap}  a.jpg"
    assert second == f' 90.0% a,b{gap}   10.0% c\\x1b[2J{" " * 16}  b," \\udcff.jpg'


def test_csv_is_read_back():
    rows = list(csv.DictReader([line + "\n" for line in lines("csv")]))
    assert list(rows[0]) == ["path", "label", "probability", "label_2", "probability_2", "error"]
    assert [row["path"] for row in rows] == [GOOD.path, ODD.path, BAD.path]
    assert (rows[1]["label"], rows[1]["label_2"]) == ODD.labels
    assert (rows[2]["label"], rows[2]["error"]) == ("", "empty file")


def test_json_lines_are_one_line_each_and_read_back():
    read = [json.loads(line) for line in lines("jsonl")]
    assert all(line.isprintable() for line in lines("jsonl"))
    assert read[0] == {
        "path": "a.jpg",
        "predictions": [{"label": "cat", "probability": 0.75}, {"label": "dog", "probability": 0.25}],
    }
    assert read[1]["path"] == ODD.path
    assert read[2] == {"path": "c.jpg", "error": "empty file"}


@pytest.mark.parametrize(
    ("text", "shown"), [("é 猫", "é 猫"), ("a\tb\x00\x7f", "a b\\x00\\x7f"), ("\udc80", "\\udc80")]
)
def test_plain_line(text, shown):
    assert plain_line(text) == shown


@pytest.mark.parametrize(("text", "shown"), [("abcdef", "abcdef"), ("abcdefg", "…cdefg")])
def test_shortened(text, shown):
    assert shortened(text, 6) == shown
