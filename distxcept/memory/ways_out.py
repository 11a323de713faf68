"""What to do when no plan fits, with numbers: first what leaves the training as it is, then what changes it, and how."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from distxcept.config.schema import Config
from distxcept.memory.candidates import Candidate
from distxcept.model.layout import MIN_IMAGE_SIZE

IMAGE_SIZES = (256, 224, 192, 160, 128, 96, MIN_IMAGE_SIZE)

Settings = Mapping[str, object]
Smallest = Callable[[Config], Candidate]
"""The candidate of a config that needs the least."""


@dataclass(frozen=True)
class Way:
    settings: Settings
    """Keys of the config and their new values."""
    changes: str | None
    """How the training becomes another one; None if it stays the same."""
    needed_bytes: int
    saved_bytes: int
    fits: bool

    @property
    def overrides(self) -> str:
        """As typed on the command line."""
        return " ".join(f"{key}={value}" for key, value in self.settings.items())


def ways_out(config: Config, smallest: Smallest, budget_bytes: int) -> list[Way]:
    """Of each way the first step that fits, or its last; if no way is enough alone, what they are together."""
    now = smallest(config).needed_bytes

    def way(settings: Settings, changes: str | None) -> Way:
        needed = smallest(with_settings(config, settings)).needed_bytes
        return Way(settings, changes, needed, now - needed, needed <= budget_bytes)

    def first_that_fits(steps: Sequence[tuple[Settings, str]]) -> list[Way]:
        ways = [way({**keeping, **settings}, changes) for settings, changes in steps]
        return [next((one for one in ways if one.fits), ways[-1])] if ways else []

    keeping = _keeping(config)
    found = [way(keeping, None)] if keeping else []
    changing = [
        *first_that_fits(_smaller_virtual(config)),
        *first_that_fits(_half_precision(config)),
        *first_that_fits(_smaller_images(config)),
    ]
    if changing and not any(one.fits for one in changing):
        settings = {key: value for one in changing for key, value in one.settings.items()}
        changing.append(way(settings, "all of this"))
    return found + changing


def with_settings(config: Config, settings: Settings) -> Config:
    fields = config.model_dump()
    for key, value in settings.items():
        *sections, last = key.split(".")
        place = fields
        for section in sections:
            place = place[section]
        place[last] = value
    return Config.model_validate(fields)


def _keeping(config: Config) -> Settings:
    settings: dict[str, object] = {}
    if config.batch.micro not in ("auto", config.batch.virtual):
        settings["batch.micro"] = "auto"
    if config.memory.remat == "off":
        settings["memory.remat"] = "auto"
    return settings


def _smaller_virtual(config: Config) -> list[tuple[Settings, str]]:
    virtual, whole = config.batch.virtual, config.batch.global_
    micro = {} if config.batch.micro == "auto" else {"batch.micro": "auto"}
    return [
        ({**micro, "batch.virtual": size}, f"batch norm over {size} samples instead of {virtual}")
        for size in range(virtual - 1, 0, -1)
        if whole % size == 0
    ]


def _half_precision(config: Config) -> list[tuple[Settings, str]]:
    if config.precision.startswith("mixed"):
        return []
    return [({"precision": "mixed_float16"}, "activations in 16 bits instead of " + config.precision[5:])]


def _smaller_images(config: Config) -> list[tuple[Settings, str]]:
    size = config.model.image_size
    return [
        ({"model.image_size": smaller}, f"images of {smaller} px instead of {size}")
        for smaller in IMAGE_SIZES
        if smaller < size
    ]
