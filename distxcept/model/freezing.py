"""What a run trains and what it keeps: the `model.freeze` key."""

from distxcept.errors import ConfigError
from distxcept.model.layout import HEAD, Layout, Parameter


def frozen_blocks(model: Layout, freeze: str | None) -> set[str]:
    names = [block.name for block in model.blocks]
    if freeze is None:
        return set()
    if freeze == "backbone":
        return set(names)
    if freeze not in names:
        raise ConfigError(f"model.freeze is {freeze}, but the model has {HEAD} and {', '.join(names)}")
    return set(names[: names.index(freeze) + 1])


def trained_parameters(model: Layout, freeze: str | None) -> list[Parameter]:
    """Parameters that gradients change, in forward order."""
    frozen = frozen_blocks(model, freeze)
    return [p for p in model.parameters if not p.moving and model.block_of(p.name) not in frozen]


def trained_norms(model: Layout, freeze: str | None) -> list[str]:
    """Batch-norm layers that run on batch statistics; those of frozen blocks run as in inference."""
    frozen = frozen_blocks(model, freeze)
    norms = [p.name.removesuffix("/gamma") for p in model.parameters if p.kind == "gamma"]
    return [norm for norm in norms if model.block_of(norm) not in frozen]
