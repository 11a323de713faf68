"""From the config's `data` section to the arguments of `pipeline.updates`."""

from typing import Any

from distxcept.data.cache import open_cache
from distxcept.data.sources.base import Source


def pipeline_options(
    data: Any, source: Source, *, image_size: int, training: bool, processes: int = 1
) -> dict[str, Any]:
    """Keyword arguments for `updates(source, …)`: threads, memory, limits, augmentation and cache of one split.

    `processes` is how many processes of the run share this machine. Only training data is cached: validation comes
    by once in an epoch, in order.
    """
    augment = data.augment if training else None
    whole = augment is not None and augment.crop is not None
    cache = (
        open_cache(
            data.cache,
            source,
            image_size=image_size,
            whole=whole,
            max_pixels=data.max_pixels,
            processes=processes,
        )
        if training
        else None
    )
    return {
        "augment": augment,
        "workers": data.workers,
        "host_memory": data.host_memory,
        "processes": processes,
        "max_pixels": data.max_pixels,
        "cache": cache,
    }
