"""The schema in words."""

import pytest

from distxcept.config.describe import all_keys, json_schema, suggest_key

KEYS = {(key.name, key.kind): key for key in all_keys()}


@pytest.mark.parametrize(
    ("name", "kind", "expected", "default"),
    [
        ("run.name", None, "a name of letters, digits, _, - and .", "the config file's name"),
        ("run.seed", None, "an integer ≥ 0", "0"),
        ("run.epochs", None, "an integer ≥ 1 or null", "10, or null with updates"),
        ("model.image_size", None, "an integer ≥ 71 and ≤ 4096", "299"),
        ("model.weights", None, "imagenet, a path or null", "null"),
        ("model.class_weights", None, "balanced, a mapping to a number > 0 or null", "null"),
        (
            "data.train",
            None,
            "a mapping of kind arrays | folder | manifest | records | synthetic | tfds",
            "required",
        ),
        ("data.train.path", "folder", "a path", "required"),
        ("data.augment.flip", None, "true or false", "true"),
        ("batch.global", None, "an integer ≥ 1", "32"),
        ("batch.virtual", None, "an integer ≥ 1", "the smaller of 32 and global"),
        ("batch.micro", None, "auto or an integer ≥ 1", "auto"),
        ("optimizer.betas", None, "a list of 2 values, each a number ≥ 0 and < 1", "[0.9, 0.999]"),
        ("optimizer.schedule.final", "cosine", "a number ≥ 0 and ≤ 1", "0.0"),
        ("engine.reduction", None, "fast or ordered", "fast"),
    ],
)
def test_keys_in_words(name, kind, expected, default):
    key = KEYS[name, kind]
    assert (key.expected, key.default) == (expected, default)


def test_every_key_and_section_is_described():
    assert [key.name for key in all_keys() if not key.description] == []
    assert [name for name, section in json_schema()["$defs"].items() if not section.get("description")] == []


@pytest.mark.parametrize(
    ("path", "siblings", "words"),
    [
        (("batch", "globl"), ["global", "virtual"], "did you mean batch.global?"),
        (("batch", "learning_rate"), ["global"], "did you mean optimizer.learning_rate?"),
        (("batch", "zzzz"), ["global", "virtual"], "the keys here are global, virtual"),
        (("optimizer", "schedule", "final"), ["kind"], "only kind cosine has it"),
    ],
)
def test_suggestions(path, siblings, words):
    assert suggest_key(path, siblings) == words
