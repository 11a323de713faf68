"""The `data` section. A new source is one class here and one member of `Source`.

Relative paths are relative to the current directory, not to the config file: the same config is started
from the same place on every machine of a cluster.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distxcept.config.augment import Augment
from distxcept.config.base import (
    MAX_INT,
    CountInt,
    Fraction,
    NameText,
    PathText,
    PositiveInt,
    Section,
    contradiction,
)
from distxcept.config.size import SizeText


class FolderSource(Section):
    """A folder with one sub-folder of images per class."""

    kind: Literal["folder"] = Field(description="images in one sub-folder per class")
    path: PathText = Field(description="the folder; relative to the current directory")


class ManifestSource(Section):
    """A CSV file that lists the path and the label of every image."""

    kind: Literal["manifest"] = Field(description="a CSV file of image paths and labels")
    path: PathText = Field(description="the CSV file, with a line of column names")
    root: PathText | None = Field(
        default=None, description="folder that image paths are relative to; null: the folder of the CSV file"
    )
    path_column: NameText = Field(default="path", description="column of the image path")
    label_column: NameText = Field(default="label", description="column of the class name")


class RecordsSource(Section):
    """TFRecord shards, written by `distxcept pack` or in the layout of ImageNet."""

    kind: Literal["records"] = Field(description="TFRecord shards")
    path: PathText = Field(description="folder of the shards, or a pattern like /data/imagenet/train-*")
    image_key: NameText = Field(default="image/encoded", description="feature that holds the encoded image")
    label_key: NameText = Field(default="image/class/label", description="feature that holds the label")
    first_label: CountInt = Field(
        default=0, description="number of the first class; 1 in the usual ImageNet shards"
    )
    index: PathText | None = Field(
        default=None,
        description="file that keeps where each image lies, written on first use; null: beside the shards",
    )


class TfdsSource(Section):
    """A dataset prepared by TensorFlow Datasets in TFRecord files (extra `tfds`)."""

    kind: Literal["tfds"] = Field(description="a prepared TensorFlow Datasets dataset")
    name: NameText = Field(description="name, with version or config if wanted: tf_flowers:3.0.1")
    split: NameText = Field(default="train", description="its split, whole: train, validation, test")
    data_dir: PathText | None = Field(
        default=None, description="where datasets are prepared; null: ~/tensorflow_datasets"
    )
    image_key: NameText = Field(default="image", description="feature that holds the image")
    label_key: NameText = Field(default="label", description="feature that holds the label")


class ArraysSource(Section):
    """Images and labels in .npy files or one .npz file, read through the page cache."""

    kind: Literal["arrays"] = Field(description="numpy arrays, memory-mapped")
    path: PathText = Field(description="images, uint8 [n, height, width, 3]: .npy, or .npz with both arrays")
    labels: PathText | None = Field(default=None, description="labels, integers [n]: .npy; null with an .npz")
    image_key: NameText = Field(default="images", description="name of the images in an .npz")
    label_key: NameText = Field(default="labels", description="name of the labels in an .npz")


class SyntheticSource(Section):
    """Generated images that can be learned and are the same on every machine."""

    kind: Literal["synthetic"] = Field(description="generated images, learnable and the same everywhere")
    samples: PositiveInt = Field(description="number of images")
    classes: Annotated[int, Field(ge=2, le=MAX_INT)] = Field(description="number of classes")


Source = Annotated[
    FolderSource | ManifestSource | RecordsSource | TfdsSource | ArraysSource | SyntheticSource,
    Field(discriminator="kind"),
]


class Evaluate(Section):
    """How validation, evaluate, predict and exports cut and scale an image."""

    crop: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="side of the centred square that is used, as part of the shorter side; 0.875 is common for ImageNet",
    )
    interpolation: Literal["bilinear", "bicubic"] = Field(
        default="bilinear", description="how that square is scaled to the image size"
    )


class DataSection(Section):
    """Where images come from, and what is done to them before the model sees them."""

    train: Source = Field(description="training images")
    validation: Source | None = Field(default=None, description="validation images; null: see next")
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="part of the training images kept for validation, chosen by a hash of each; null: none",
    )
    augment: Augment | None = Field(
        default=Augment(), description="random changes of training images; null: none at all"
    )
    evaluate: Evaluate = Field(
        default=Evaluate(), description="the part of an image that validation and predictions use"
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
    max_pixels: PositiveInt = Field(
        default=100_000_000, description="an image that declares more is bad, and never decoded"
    )
    cache: Literal["none", "memory"] | PathText = Field(
        default="none", description="keep decoded images: none, memory, or a folder on a fast disk"
    )
    workers: Literal["auto"] | PositiveInt = Field(
        default="auto",
        description="threads that read and decode; auto: as many as the cores to decode, and up to four times as many "
        "to read; more help where the storage answers slowly",
    )
    host_memory: Literal["auto"] | SizeText = Field(
        default="auto", description="memory for batches read ahead; auto: an eighth of what is free"
    )

    @model_validator(mode="after")
    def _one_validation(self) -> Self:
        if self.validation is not None and self.validation_fraction is not None:
            raise contradiction(
                "validation_fraction", "given together with validation; set one of them to null"
            )
        return self
