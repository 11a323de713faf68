"""The `optimizer` section: rule, learning rate and its schedule. Everything counts updates, never micro steps."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distxcept.config.base import (
    CountInt,
    Fraction,
    FractionBelowOne,
    Metric,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    contradiction,
)


class ConstantSchedule(Section):
    """The same learning rate from the end of the warm-up on."""

    kind: Literal["constant"] = Field(description="the learning rate stays as it is")


class ExponentialSchedule(Section):
    """rate × decay ^ (epochs / every_epochs). The defaults are those of the Xception paper."""

    kind: Literal["exponential"] = Field(description="multiply by `decay` every `every_epochs` epochs")
    decay: Annotated[float, Field(gt=0, le=1)] = Field(default=0.94, description="factor of one decay")
    every_epochs: PositiveFloat = Field(default=2.0, description="epochs between decays")
    staircase: bool = Field(default=True, description="decay in steps; false: a little with every update")


class StepSchedule(Section):
    """Multiply the learning rate by `factor` at each of the given epochs."""

    kind: Literal["step"] = Field(description="multiply by `factor` at each epoch of `at_epochs`")
    at_epochs: tuple[PositiveFloat, ...] = Field(
        strict=False, min_length=1, max_length=1000, description="epochs at which the rate drops, ascending"
    )
    factor: PositiveFloat = Field(default=0.1, description="factor of one drop")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.at_epochs) != sorted(set(self.at_epochs)):
            raise contradiction("at_epochs", f"{list(self.at_epochs)} must be ascending, each epoch once")
        return self


class CosineSchedule(Section):
    """Half a cosine from the base rate at the end of the warm-up to `final` × the base rate at the last update."""

    kind: Literal["cosine"] = Field(description="fall along half a cosine until the last update")
    final: Fraction = Field(default=0.0, description="learning rate at the end, as a part of the base rate")


Schedule = Annotated[
    ConstantSchedule | ExponentialSchedule | StepSchedule | CosineSchedule, Field(discriminator="kind")
]


class Plateau(Section):
    """Lower the learning rate when validation stops getting better."""

    metric: Metric = Field(default="validation_loss", description="what has to get better")
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.5, description="factor of one reduction")
    patience: PositiveInt = Field(default=3, description="evaluations without improvement before a reduction")
    min_learning_rate: NonNegativeFloat = Field(default=0.0, description="no reduction below this rate")


class Pruning(Section):
    """Set the smallest weights of each kernel to zero, more and more of them, and train on with the rest.

    The part that is zero grows from 0 at `begin_update` to `final_sparsity` at `end_update`, fast at first:
    final × (1 − (1 − progress)³). Spared: depthwise and batch-norm parameters, the first convolution and the classifier.
    """

    final_sparsity: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="part of each kernel's weights that is zero in the end"
    )
    begin_update: CountInt = Field(default=0, description="update at which pruning begins")
    end_update: PositiveInt = Field(description="update from which the part no longer grows")
    every_updates: PositiveInt = Field(
        default=100, description="updates between two prunings; in between, what is zero stays zero"
    )

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.end_update <= self.begin_update:
            raise contradiction(
                "end_update", f"{self.end_update} must come after begin_update {self.begin_update}"
            )
        return self


class OptimizerSection(Section):
    """How the reduced gradient changes the weights."""

    name: Literal["sgd", "rmsprop", "adam", "adamw", "lamb"] = Field(default="sgd", description="update rule")
    learning_rate: PositiveFloat = Field(default=0.045, description="base learning rate")
    momentum: FractionBelowOne = Field(default=0.9, description="momentum (sgd, rmsprop); 0: none")
    nesterov: bool = Field(default=False, description="Nesterov momentum (sgd)")
    weight_decay: NonNegativeFloat = Field(
        default=0.0,
        description="decoupled for adamw and lamb, else added to the clipped gradient; "
        "batch-norm parameters and biases are exempt",
    )
    clip_norm: PositiveFloat | None = Field(
        default=None, description="largest norm of the whole, reduced gradient; null: no clipping"
    )
    ema: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="decay per update of a moving average of the weights, which validation, best and "
        "export then use; null: none",
    )
    betas: tuple[FractionBelowOne, FractionBelowOne] = Field(
        default=(0.9, 0.999), strict=False, description="decays of the two moments (adam, adamw, lamb)"
    )
    epsilon: PositiveFloat = Field(
        default=1e-7, description="keeps divisions finite (rmsprop, adam, adamw, lamb)"
    )
    rho: FractionBelowOne = Field(default=0.9, description="decay of the mean square (rmsprop)")
    schedule: Schedule = Field(
        default=ConstantSchedule(kind="constant"), description="learning rate over the course of the run"
    )
    warmup_updates: CountInt = Field(
        default=0, description="updates over which the rate rises linearly from 0"
    )
    base_batch: PositiveInt | None = Field(
        default=None,
        description="linear scaling: learning_rate × batch.global / base_batch; null: no scaling",
    )
    plateau: Plateau | None = Field(
        default=None, description="lower the rate when validation stops getting better; null: never"
    )

    pruning: Pruning | None = Field(
        default=None, description="set small weights to zero during training (fine-tuning); null: none"
    )

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Values that the rule keeps for each weight from one update to the next."""
        if self.name == "sgd":
            return ("velocity",) if self.momentum else ()
        if self.name == "rmsprop":
            return ("mean_square", "velocity") if self.momentum else ("mean_square",)
        return ("first_moment", "second_moment")

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise contradiction("nesterov", "true needs momentum above 0")
        return self
