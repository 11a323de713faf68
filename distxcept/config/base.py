"""What every section of the config shares: strictness, and number and text types with their bounds.

Values are never converted: `"3"` is no number, `true` is no 1, `3.0` is no integer; an integer may stand
where a float is expected. Infinity and NaN are refused everywhere.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

# Seeds, counts and sizes end up in int32 tensors somewhere, so that is the bound of every integer here.
MAX_INT = 2**31 - 1


class Section(BaseModel):
    """A part of the config: immutable, unknown keys refused, nothing converted."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        protected_namespaces=(),
    )


def contradiction(key: str, message: str) -> PydanticCustomError:
    """For checks over several fields: `key`, relative to the section, is where the error is reported."""
    return PydanticCustomError("contradiction", "{message}", {"key": key, "message": message})


PositiveInt = Annotated[int, Field(ge=1, le=MAX_INT)]
CountInt = Annotated[int, Field(ge=0, le=MAX_INT)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
FractionBelowOne = Annotated[float, Field(ge=0, lt=1)]

# YAML and the file system both choke on control characters, and an empty path means the current folder by accident.
_ONE_LINE = r"^[^\x00-\x1f\x7f]+$"
NameText = Annotated[
    str, Field(max_length=4096, pattern=_ONE_LINE, json_schema_extra={"x-type": "a name in one line"})
]
PathText = Annotated[str, Field(max_length=4096, pattern=_ONE_LINE, json_schema_extra={"x-type": "a path"})]


def _switch(value: Any) -> Any:
    """Other YAML tools write `on` and `off` for true and false, so a rewritten file may hold either."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)]

# Metrics that a decision may rest on: exact and equal on every rank. Larger is better but for the loss.
Metric = Literal["validation_loss", "validation_accuracy", "validation_top5_accuracy"]


def larger_is_better(metric: Metric) -> bool:
    return not metric.endswith("loss")
