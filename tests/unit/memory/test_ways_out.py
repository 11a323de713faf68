"""What is proposed when nothing fits."""

from types import SimpleNamespace

from distxcept.config.schema import Config
from distxcept.memory.ways_out import ways_out, with_settings


def config_of(**sections) -> Config:
    data = {"train": {"kind": "synthetic", "samples": 1000, "classes": 10}}
    return Config.model_validate({"data": data, "batch": {"global": 48, "virtual": 16}, **sections})


def smallest(config: Config) -> SimpleNamespace:
    """A device on which activations are everything: 1 byte for each pixel of a micro batch."""
    micro = config.batch.virtual if config.batch.micro == "auto" else config.batch.micro
    size = micro * config.model.image_size**2
    size //= 2 if config.memory.remat != "off" else 1
    return SimpleNamespace(needed_bytes=size // 2 if config.precision.startswith("mixed") else size)


def test_each_way_takes_its_first_step_that_fits():
    now = 16 * 299**2 // 2
    ways = {way.overrides: way for way in ways_out(config_of(), smallest, budget_bytes=now // 2)}
    assert list(ways) == ["batch.virtual=8", "precision=mixed_float16", "model.image_size=192"]
    assert all(way.fits for way in ways.values())
    assert all(way.changes for way in ways.values())
    assert ways["batch.virtual=8"].saved_bytes == now - 8 * 299**2 // 2
    assert ways["batch.virtual=8"].changes == "batch norm over 8 samples instead of 16"
    assert ways["model.image_size=192"].changes == "images of 192 px instead of 299"


def test_what_keeps_the_training_comes_first_and_is_part_of_the_rest():
    config = config_of(
        batch={"global": 48, "virtual": 16, "micro": 48}, memory={"remat": "off"}, precision="mixed_float16"
    )
    ways = ways_out(config, smallest, budget_bytes=16 * 299**2 // 4)
    assert ways[0].overrides == "batch.micro=auto memory.remat=auto"
    assert ways[0].changes is None and ways[0].fits
    assert [dict(way.settings) for way in ways[1:]] == [
        {"batch.micro": "auto", "memory.remat": "auto", "batch.virtual": 12},
        {"batch.micro": "auto", "memory.remat": "auto", "model.image_size": 256},
    ]


def test_if_none_is_enough_alone_all_of_them_together():
    ways = ways_out(config_of(), smallest, budget_bytes=71 * 71 // 4)
    assert [way.fits for way in ways] == [False, False, False, True]
    assert ways[-1].overrides == "batch.virtual=1 precision=mixed_float16 model.image_size=71"
    assert ways[-1].changes == "all of this"


def test_settings_reach_the_config():
    changed = with_settings(config_of(), {"batch.virtual": 4, "model.image_size": 96, "precision": "float64"})
    assert (changed.batch.virtual, changed.model.image_size, changed.precision) == (4, 96, "float64")
