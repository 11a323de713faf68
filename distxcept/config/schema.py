"""The config: every key with its type, bounds, default and meaning, declared in one place.

`Config` is what all other modules take. The `data` and `optimizer` sections have files of their own.
Whether batch sizes divide is no matter of the schema: `batching.BatchPlan` knows the world size, this does not.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from distxcept.config.augment import Augment, Crop
from distxcept.config.base import (
    MAX_INT,
    CountInt,
    FractionBelowOne,
    Metric,
    NameText,
    NonNegativeFloat,
    PathText,
    PositiveFloat,
    PositiveInt,
    Section,
    Switch,
    contradiction,
    larger_is_better,
)
from distxcept.config.data import (
    ArraysSource,
    DataSection,
    Evaluate,
    FolderSource,
    ManifestSource,
    RecordsSource,
    Source,
    SyntheticSource,
    TfdsSource,
)
from distxcept.config.network import NetworkSection
from distxcept.config.optimizer import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    OptimizerSection,
    Plateau,
    Pruning,
    Schedule,
    StepSchedule,
)
from distxcept.config.size import SizeText
from distxcept.config.yaml_text import dump_yaml

__all__ = [
    "ArraysSource",
    "Augment",
    "BatchSection",
    "CheckpointSection",
    "Config",
    "ConstantSchedule",
    "CosineSchedule",
    "Crop",
    "DataSection",
    "EarlyStopping",
    "EngineSection",
    "Evaluate",
    "ExponentialSchedule",
    "FolderSource",
    "ManifestSource",
    "MemorySection",
    "Metric",
    "ModelSection",
    "OptimizerSection",
    "Plateau",
    "Precision",
    "Pruning",
    "RecordsSource",
    "RunSection",
    "Schedule",
    "Source",
    "StepSchedule",
    "SyntheticSource",
    "TfdsSource",
    "larger_is_better",
]

# The name becomes a folder, a SLURM job name and a part of shell commands.
RunName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        max_length=100,
        json_schema_extra={"x-type": "a name of letters, digits, _, - and ."},
    ),
]


Frozen = Annotated[
    str,
    Field(
        pattern=r"^(backbone|block([1-9]|1[0-4]))$",
        json_schema_extra={"x-type": "backbone, blockK (1 ≤ K ≤ 14)"},
    ),
]

WriterName = Literal["tensorboard", "wandb", "mlflow"]

Precision = Literal["float32", "mixed_float16", "mixed_bfloat16", "float64"]


class EarlyStopping(Section):
    """End the run when validation stops getting better."""

    metric: Metric = Field(default="validation_loss", description="what has to get better")
    patience: PositiveInt = Field(
        default=5, description="evaluations without improvement before the run ends"
    )
    min_delta: NonNegativeFloat = Field(default=0.0, description="a smaller change is no improvement")


def _default_epochs(validated: dict[str, Any]) -> int | None:
    return 10 if validated.get("updates") is None else None


class RunSection(Section):
    """How long the run lasts, where it is kept, and when it looks at itself."""

    name: RunName = Field(
        default="run",
        description="name of the run's folder",
        json_schema_extra={"x-default": "the config file's name"},
    )
    dir: PathText = Field(
        default="runs", description="folder that holds the runs; relative to the current directory"
    )
    seed: CountInt = Field(default=0, description="fixes weights at start, order, augmentation and dropout")
    resume: Literal["auto", "never"] | PathText = Field(
        default="auto",
        description="auto: go on where this run stopped; never: start anew; or the path of a snapshot",
    )
    updates: PositiveInt | None = Field(
        default=None, description="length in weight updates, instead of epochs"
    )
    epochs: PositiveInt | None = Field(
        default_factory=_default_epochs,
        description="length in passes over the training data",
        json_schema_extra={"x-default": "10, or null with updates"},
    )
    early_stopping: EarlyStopping | None = Field(
        default=None, description="end when validation stops getting better; null: never"
    )
    evaluate_every: PositiveInt | None = Field(
        default=None, description="updates between evaluations; null: at the end of each epoch"
    )
    log_every: PositiveInt = Field(default=10, description="updates between lines of metrics.jsonl")
    telemetry_every: Annotated[float, Field(ge=0.1)] | None = Field(
        default=5.0, description="seconds between looks at the devices (telemetry.jsonl); null: none"
    )
    writers: Annotated[tuple[WriterName, ...], Field(strict=False, max_length=8)] = Field(
        default=("tensorboard",),
        description="where metrics go besides the run's own files; wandb and mlflow are extras to install",
    )
    max_nonfinite_updates: PositiveInt = Field(
        default=10, description="so many non-finite updates in a row end the run as diverged (exit 5)"
    )

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.updates is not None:
            raise contradiction("updates", "given together with epochs; set one of them to null")
        if self.epochs is None and self.updates is None:
            raise contradiction("epochs", "null, and updates too; give one of them")
        return self


class ModelSection(Section):
    """The network."""

    image_size: Annotated[int, Field(ge=71, le=4096)] = Field(
        default=299, description="side of the square input, pixels"
    )
    width: Annotated[float, Field(gt=0, le=2)] = Field(
        default=1.0, description="factor on the number of channels; 1.0 is the paper's Xception"
    )
    middle_blocks: Annotated[int, Field(ge=0, le=8)] = Field(
        default=8, description="blocks of the middle flow; 8 is the paper's Xception, fewer train faster"
    )
    classes: Literal["auto"] | Annotated[int, Field(ge=2, le=MAX_INT)] = Field(
        default="auto", description="number of classes; auto: as many as the training data has"
    )
    dropout: FractionBelowOne = Field(default=0.5, description="dropout before the last layer")
    weights: Literal["imagenet"] | PathText | None = Field(
        default=None,
        description="weights to start from: imagenet, or the path of a file relative to the current "
        "directory; null: random",
    )
    freeze: Frozen | None = Field(
        default=None,
        description="keep weights as they are: backbone (all but the last layer), or blockK (blocks 1 to K "
        "of 14); null: train all",
    )
    label_smoothing: FractionBelowOne = Field(
        default=0.0, description="part of each label spread over all classes"
    )
    batchnorm_momentum: FractionBelowOne = Field(
        default=0.99, description="part of the moving statistics kept at each update"
    )
    class_weights: Literal["balanced"] | dict[str | CountInt, PositiveFloat] | None = Field(
        default=None,
        description="weight of each class in the loss: balanced (by frequency), or a mapping of class name "
        "or index to weight (others 1); null: all equal",
    )

    @model_validator(mode="after")
    def _imagenet_fits(self) -> Self:
        if self.weights == "imagenet" and self.width != 1.0:
            raise contradiction("weights", f"imagenet needs width 1.0, not {self.width}")
        if self.weights == "imagenet" and self.middle_blocks != 8:
            raise contradiction("weights", f"imagenet needs middle_blocks 8, not {self.middle_blocks}")
        return self


def _default_virtual(validated: dict[str, Any]) -> int:
    return min(32, validated.get("global_", 32))


class BatchSection(Section):
    """Samples of an update, of shared batch-norm statistics, and of one forward and backward pass."""

    global_: PositiveInt = Field(default=32, alias="global", description="samples of one weight update")
    virtual: PositiveInt = Field(
        default_factory=_default_virtual,
        description="samples that share batch-norm statistics; divides global",
        json_schema_extra={"x-default": "the smaller of 32 and global"},
    )
    micro: Literal["auto"] | PositiveInt = Field(
        default="auto",
        description="samples that a replica runs at once, a multiple of virtual; changes memory and speed, "
        "not the result",
    )


class EngineSection(Section):
    """Which devices do the work. Nothing here changes the result beyond rounding."""

    name: Literal["auto", "single", "mirrored", "horovod"] = Field(
        default="auto",
        description="auto: horovod if several tasks were launched, mirrored with several GPUs, else single",
    )
    devices: (
        Literal["auto"]
        | PositiveInt
        | Annotated[tuple[NameText, ...], Field(strict=False, min_length=1, max_length=1024)]
    ) = Field(
        default="auto",
        description="devices of this process: all, a number, or a list of names like GPU:1; others are left alone",
    )
    shares: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1, max_length=65536)] | None = (
        Field(default=None, description="work of each replica in proportion, where cards differ; null: even")
    )
    threads: PositiveInt | None = Field(
        default=None,
        description="CPU threads of one operation in a process; null: one for each core, or one where the parts of a "
        "micro step have a core each",
    )
    jit: Switch = Field(
        default="auto",
        description="XLA compiles the micro step; auto: on a GPU what the trials of batch.micro: auto find faster, else off",
    )
    tf32: Switch = Field(
        default="auto",
        description="float32 products on GPUs since Ampere may round their inputs to 10 bits (TF32), which is faster; "
        "auto: on, as TensorFlow does by itself, but off with an ordered reduction",
    )
    deterministic: Switch = Field(
        default="auto",
        description="use only kernels that repeat their bits from run to run, slower on a GPU; auto: off, but on with an "
        "ordered reduction",
    )
    compression: Literal["none", "fp16"] = Field(
        default="none", description="gradients on the wire between ranks"
    )
    require_nccl: bool = Field(
        default=True,
        description="ranks on GPUs need a Horovod with NCCL; false: without it gradients go through the host, slowly",
    )
    reduction: Literal["fast", "ordered"] = Field(
        default="fast",
        description="ordered: the same bits on every world size that divides lanes, at some cost",
    )
    lanes: PositiveInt = Field(default=8, description="partial sums of an ordered reduction")
    overlap: Switch = Field(
        default="auto", description="start reducing while the last micro step's backward pass still runs"
    )
    check_every: PositiveInt = Field(
        default=500, description="updates between checks that all ranks hold equal weights"
    )

    peer_timeout: Annotated[float, Field(ge=2, le=86400)] = Field(
        default=30.0, description="seconds without a sign of life after which a rank counts as lost (exit 6)"
    )
    stall_timeout: Annotated[float, Field(ge=10, le=604800)] = Field(
        default=1800.0,
        description="seconds that a reduction waits for a rank that is alive but does not come; longer than "
        "the slowest update",
    )
    network: NetworkSection = Field(default_factory=NetworkSection)

    @property
    def compiles(self) -> bool:
        """What `jit` comes to."""
        return self.jit == "on"

    @property
    def allows_tf32(self) -> bool:
        """What `tf32` comes to."""
        return self.tf32 == "on" or (self.tf32 == "auto" and self.reduction == "fast")

    @property
    def is_deterministic(self) -> bool:
        """What `deterministic` comes to."""
        return self.deterministic == "on" or (self.deterministic == "auto" and self.reduction == "ordered")

    @model_validator(mode="after")
    def _ordered_is_exact(self) -> Self:
        if self.reduction == "ordered" and self.tf32 == "on":
            raise contradiction("tf32", "an ordered reduction needs tf32 off (or auto), not on")
        if self.reduction == "ordered" and self.deterministic == "off":
            raise contradiction(
                "deterministic", "an ordered reduction needs deterministic on (or auto), not off"
            )
        if self.is_deterministic and self.jit == "on":
            raise contradiction(
                "jit", "deterministic kernels need jit off: XLA has none for the gradient of max pooling"
            )
        if self.reduction == "ordered" and self.compression != "none":
            raise contradiction("reduction", f"ordered needs compression none, not {self.compression}")
        if self.reduction == "ordered" and self.shares is not None:
            raise contradiction("shares", "an ordered reduction deals lanes evenly; remove shares")
        return self


class MemorySection(Section):
    """What a device may use, and what may be done to fit. Nothing here changes the result beyond rounding."""

    limit: SizeText | None = Field(
        default=None, description="most memory of a device that the run may use; null: all that is free"
    )
    reserve: SizeText = Field(
        default="300MiB", description="free memory of a GPU left alone, for the driver and other processes"
    )
    remat: Switch = Field(
        default="auto",
        description="compute activations again in the backward pass instead of keeping them; auto: where "
        "nothing else fits",
    )


class CheckpointSection(Section):
    """When snapshots are written, and which stay. There is always one at the end of a run."""

    every_updates: PositiveInt | None = Field(
        default=None, description="updates between snapshots; null: by time only"
    )
    every_minutes: PositiveFloat | None = Field(
        default=10.0, description="minutes between snapshots; null: by updates only"
    )
    max_failures: PositiveInt = Field(
        default=5, description="so many saves in a row that fail, full disk or else, end the run (exit 1)"
    )
    keep: PositiveInt = Field(default=3, description="newest snapshots kept, besides the best")
    best_metric: Metric | None = Field(
        default="validation_accuracy",
        description="the best by this metric is kept too; null, or no validation: none",
    )


class Config(Section):
    """A whole run."""

    run: RunSection = Field(default=RunSection(), description="length, place, seed and rhythm of the run")
    model: ModelSection = Field(default=ModelSection(), description="the network")
    data: DataSection = Field(description="images")
    batch: BatchSection = Field(default=BatchSection(), description="batch sizes")
    optimizer: OptimizerSection = Field(
        default=OptimizerSection(), description="update rule and learning rate"
    )
    precision: Precision = Field(default="float32", description="number format of weights and computation")
    engine: EngineSection = Field(default=EngineSection(), description="devices and reduction")
    memory: MemorySection = Field(default=MemorySection(), description="memory of the devices")
    checkpoint: CheckpointSection = Field(default=CheckpointSection(), description="snapshots")

    @model_validator(mode="after")
    def _metrics_exist(self) -> Self:
        if self.data.validation is not None or self.data.validation_fraction is not None:
            return self
        for key, section in (
            ("run.early_stopping", self.run.early_stopping),
            ("optimizer.plateau", self.optimizer.plateau),
        ):
            if section is not None:
                raise contradiction(key, f"{section.metric} needs data.validation or validation_fraction")
        return self

    def to_yaml(self) -> str:
        """The resolved config; written to a file, it starts the same run."""
        return dump_yaml(self.model_dump())
