"""Would a larger micro batch fit on the cards beside what they hold now? Asked when they wait too much."""

from collections.abc import Sequence
from dataclasses import dataclass

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.config.size import parse_size
from distxcept.memory.candidates import Candidate, Situation, candidates
from distxcept.memory.sample import Moment

ESTIMATE_ERROR = 0.15
"""What the estimate may be wrong by: only what fits in spite of it is proposed."""


def largest_that_fits(
    larger: Sequence[Candidate], now: Candidate, *, free_bytes: int, limit_bytes: int | None
) -> Candidate | None:
    """Judged by the difference to what runs already; under `memory.limit` by the whole as well."""

    def fits(one: Candidate) -> bool:
        more_bytes = (one.needed_bytes - now.needed_bytes) * (1 + ESTIMATE_ERROR)
        within = limit_bytes is None or one.needed_bytes * (1 + ESTIMATE_ERROR) <= limit_bytes
        return within and more_bytes <= free_bytes

    possible = [one for one in larger if one.micro_steps < now.micro_steps and fits(one)]
    return max(possible, key=lambda one: one.micro_batch, default=None)


@dataclass(frozen=True)
class Roomier:
    """Of a run: the answer for where it is."""

    config: Config
    plan: BatchPlan
    """As the process began it."""
    remat: bool
    situation: Situation
    tried: bool = False
    """Larger ones are out of the question: measured for `batch.micro: auto`, or an earlier process was lost with one."""

    def __call__(self, moment: Moment, free_bytes: int) -> tuple[int, int] | None:
        if self.tried or (moment.micro_batch, moment.remat) != (self.plan.micro_batch, self.remat):
            return None  # it was larger, and ran out of memory
        (now,) = self._candidates(moment.micro_batch)
        memory = self.config.memory
        found = largest_that_fits(
            self._candidates("auto"),
            now,
            free_bytes=free_bytes - parse_size(memory.reserve),
            limit_bytes=None if memory.limit is None else parse_size(memory.limit),
        )
        return None if found is None else (found.micro_batch, found.micro_steps)

    def _candidates(self, micro: int | str) -> list[Candidate]:
        config = self.config.model_copy(
            update={
                "batch": self.config.batch.model_copy(update={"micro": micro}),
                "memory": self.config.memory.model_copy(update={"remat": "on" if self.remat else "off"}),
            }
        )
        return candidates(config, self.plan, self.situation)
