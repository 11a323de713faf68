"""What a run trains and what it keeps: the `model.freeze` key."""

from distxcept.errors import ConfigError
from distxcept.model.layout import HEAD, Parameter
from distxcept.model.network import Described


def frozen_blocks(model: Described, freeze: str | None) -> set[str]:
    names = [block.name for block in model.blocks]
    if freeze is None:
        return set()
    if freeze == "backbone":
        return set(names)
    if freeze not in names:
        raise ConfigError(f"model.freeze is {freeze}, but the model has {HEAD} and {', '.join(names)}")
    return set(names[: names.index(freeze) + 1])


def trained_parameters(model: Described, freeze: str | None) -> list[Parameter]:
    """Parameters that gradients change, in forward order."""
    frozen = frozen_blocks(model, freeze)
    return [
        p for p in model.parameters if not (p.moving or p.frozen) and model.block_of(p.name) not in frozen
    ]


def trained_norms(model: Described, freeze: str | None) -> list[str]:
    """Batch-norm layers that run on batch statistics; those of frozen blocks run as in inference."""
    frozen = frozen_blocks(model, freeze)
    norms = [
        p.name.removesuffix("/moving_mean")
        for p in model.parameters
        if p.kind == "moving_mean" and not p.frozen
    ]
    return [norm for norm in norms if model.block_of(norm) not in frozen]
