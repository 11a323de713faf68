"""The `engine.network` section: how Horovod and NCCL move gradients between ranks."""

from typing import Annotated, Literal

from pydantic import Field

from distxcept.config.base import NameText, Section
from distxcept.config.size import SizeText


class NetworkSection(Section):
    """How Horovod and NCCL move gradients; null leaves it to them. Nothing here changes the result beyond rounding."""

    fusion_threshold: SizeText | None = Field(
        default=None, description="Horovod puts reductions together up to this size (its default: 64 MiB)"
    )
    cycle_time: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None,
        description="milliseconds between Horovod's looks at what is ready (null: 5 on CPUs, else its default of 1)",
    )
    hierarchical: bool | None = Field(
        default=None, description="reduce within each node first, then between the nodes (needs NCCL)"
    )
    interface: NameText | None = Field(default=None, description="network interface for NCCL's sockets")
    infiniband: bool | None = Field(default=None, description="false: NCCL leaves InfiniBand alone")
    nccl_debug: Literal["version", "warn", "info", "trace"] | None = Field(
        default=None, description="what NCCL tells about its choices"
    )
