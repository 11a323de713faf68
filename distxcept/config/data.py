"""The `data` section. A new source is one class here and one member of `Source`.

Relative paths are relative to the current directory, not to the config file: the same config is started
from the same place on every machine of a cluster.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distxcept.config.base import (
    MAX_INT,
    Fraction,
    PathText,
    PositiveFloat,
    PositiveInt,
    Section,
    contradiction,
)


class FolderSource(Section):
    """A folder with one sub-folder of images per class."""

    kind: Literal["folder"] = Field(description="images in one sub-folder per class")
    path: PathText = Field(description="the folder; relative to the current directory")


class SyntheticSource(Section):
    """Generated images that can be learned and are the same on every machine."""

    kind: Literal["synthetic"] = Field(description="generated images, learnable and the same everywhere")
    samples: PositiveInt = Field(description="number of images")
    classes: Annotated[int, Field(ge=2, le=MAX_INT)] = Field(description="number of classes")


Source = Annotated[FolderSource | SyntheticSource, Field(discriminator="kind")]


class Crop(Section):
    """Random resized crop: a part of the image, scaled to the model's size."""

    scale: tuple[PositiveFloat, PositiveFloat] = Field(
        default=(0.35, 1.0), strict=False, description="smallest and largest part of the image's area"
    )
    ratio: tuple[PositiveFloat, PositiveFloat] = Field(
        default=(0.75, 1.3333), strict=False, description="smallest and largest width / height"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for key, (low, high) in (("scale", self.scale), ("ratio", self.ratio)):
            if low > high:
                raise contradiction(key, f"[{low}, {high}] must be written smallest first")
        if self.scale[1] > 1:
            raise contradiction("scale", f"{self.scale[1]} is more than the whole image (1.0)")
        return self


class Augment(Section):
    """Random changes of training images, drawn from (seed, epoch, sample) alone."""

    flip: bool = Field(default=True, description="mirror every other image left to right")
    crop: Crop | None = Field(
        default=None, description="random resized crop; null: the largest centred square"
    )


class DataSection(Section):
    """Where images come from, and what is done to them before the model sees them."""

    train: Source = Field(description="training images")
    validation: Source | None = Field(default=None, description="validation images; null: no validation")
    augment: Augment | None = Field(
        default=Augment(), description="random changes of training images; null: none at all"
    )
    remainder: Literal["keep", "drop"] = Field(
        default="keep",
        description="samples of an epoch that do not fill a global batch: one short update, or none",
    )
    on_bad_image: Literal["skip", "fail"] = Field(
        default="skip", description="an image that cannot be read: counts as weight zero, or ends the run"
    )
    max_bad_fraction: Fraction = Field(
        default=0.01, description="more bad images than this part end the run (exit 3)"
    )
