"""`data.augment`: random changes of training images. Each is off at null or zero."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from distxcept.config.base import (
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    contradiction,
)

Degrees = Annotated[float, Field(ge=0, le=180)]


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


class Color(Section):
    """Colour jitter: each factor is drawn from 1 - x to 1 + x, the hue from -x to x turns."""

    brightness: Fraction = Field(default=0.0, description="largest change of brightness")
    contrast: Fraction = Field(default=0.0, description="largest change of contrast")
    saturation: Fraction = Field(default=0.0, description="largest change of saturation")
    hue: Annotated[float, Field(ge=0, le=0.5)] = Field(default=0.0, description="largest turn of the hue")


class RandAugment(Section):
    """A few operations chosen at random from fourteen, all of the same strength."""

    operations: PositiveInt = Field(default=2, description="operations on each image")
    magnitude: Annotated[float, Field(ge=0, le=10)] = Field(default=5.0, description="strength, 0 to 10")


class Erase(Section):
    """Random erasing: a rectangle is replaced by noise."""

    probability: Fraction = Field(default=0.25, description="part of the images that get it")
    area: tuple[PositiveFloat, PositiveFloat] = Field(
        default=(0.02, 0.33), strict=False, description="smallest and largest part of the area"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.area[0] <= self.area[1] <= 1:
            raise contradiction(
                "area", f"{list(self.area)} must be written smallest first and end at 1 or less"
            )
        return self


class Augment(Section):
    """Random changes of training images, drawn from (seed, epoch, sample) alone."""

    flip: bool = Field(default=True, description="mirror every other image left to right")
    crop: Crop | None = Field(
        default=None, description="random resized crop; null: the largest centred square"
    )
    rotate: Degrees = Field(default=0.0, description="largest turn, degrees")
    shift: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="largest move in each direction, as part of the side"
    )
    shear: Annotated[float, Field(ge=0, le=60)] = Field(default=0.0, description="largest shear, degrees")
    zoom: tuple[PositiveFloat, PositiveFloat] | None = Field(
        default=None, strict=False, description="smallest and largest magnification, such as [0.8, 1.25]"
    )
    color: Color | None = Field(default=None, description="colour jitter")
    randaugment: RandAugment | None = Field(default=None, description="random operations of equal strength")
    autoaugment: bool = Field(
        default=False, description="AutoAugment: the published policy for ImageNet, pairs of operations"
    )
    trivialaugment: bool = Field(
        default=False, description="TrivialAugment (wide): one operation of any strength on each image"
    )
    erase: Erase | None = Field(default=None, description="random erasing")
    mixup: NonNegativeFloat = Field(
        default=0.0, description="MixUp: alpha of the Beta distribution of the mixture; 0: off"
    )
    cutmix: NonNegativeFloat = Field(
        default=0.0,
        description="CutMix: alpha of the Beta distribution of the patch; with mixup, either by turns",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.zoom is not None and self.zoom[0] > self.zoom[1]:
            raise contradiction("zoom", f"{list(self.zoom)} must be written smallest first")
        return self

    @model_validator(mode="after")
    def _one_policy(self) -> Self:
        policies = {
            "randaugment": self.randaugment is not None,
            "autoaugment": self.autoaugment,
            "trivialaugment": self.trivialaugment,
        }
        chosen = [name for name, on in policies.items() if on]
        if len(chosen) > 1:
            raise contradiction(chosen[-1], f"only one of {' and '.join(chosen)} can be on")
        return self
