"""What of a config cannot be said of a model that is given from Python."""

import pytest

from distxcept.config.own_model import overrides_for_own_model
from distxcept.config.schema import Config
from distxcept.errors import ConfigError

DATA = {"train": {"kind": "synthetic", "samples": 4, "classes": 2}}


def config(**sections) -> Config:
    return Config.model_validate({"data": DATA, **sections})


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"model": {"width": 0.5}}, r"model\.width is 0\.5, but the model is given from Python"),
        ({"model": {"middle_blocks": 2}}, r"model\.middle_blocks is 2"),
        ({"model": {"dropout": 0.2}}, r"model\.dropout is 0\.2.*Dropout layers have their own"),
        ({"model": {"weights": "imagenet"}}, r"model\.weights is imagenet.*values that it has"),
        ({"model": {"freeze": "backbone"}}, r"model\.freeze is backbone.*layer\.trainable = False"),
        ({"model": {"batchnorm_momentum": 0.5}}, r"model\.batchnorm_momentum is 0\.5"),
        ({"memory": {"remat": "on"}}, r"memory\.remat is on.*set it to off"),
    ],
)
def test_refused_by_name(sections, reason):
    with pytest.raises(ConfigError, match=reason):
        overrides_for_own_model(config(**sections))


def test_what_auto_means():
    assert overrides_for_own_model(config(batch={"global": 16, "virtual": 4})) == [
        "memory.remat=off",
        "batch.micro=4",
    ]
    chosen = config(batch={"global": 16, "virtual": 4, "micro": 8}, model={"image_size": 96, "classes": 7})
    assert overrides_for_own_model(chosen) == ["memory.remat=off"]


def test_a_resolved_config_is_taken_again():
    """The run folder's config.yaml names every key."""
    resolved = Config.model_validate(config().model_dump(mode="json", by_alias=True))
    assert "memory.remat=off" in overrides_for_own_model(resolved)
