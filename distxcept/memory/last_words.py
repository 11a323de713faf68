"""How a process without memory ends: what stands last in its log. Pure."""

import re

OUT_OF_MEMORY = re.compile(
    r"std::bad_alloc|Resource_?Exhausted|could not create a primitive|OOM when allocating|Cannot allocate memory|"
    r"MemoryError|oom[-_]kill|(?<!ran\s)(?<!running\s)out of memory",
    re.IGNORECASE,
)
"""Not the training's own notice that it `ran out of memory` and went on, nor what it says of trials in child processes."""
