"""The plan in use, and smaller ones after it where an update runs out of memory. The result stays the same."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from distxcept.errors import DistxceptError, DoesNotFitError, LostForMemoryError
from distxcept.memory.limit import release_memory
from distxcept.memory.memory_plan import InUse, MemoryPlan, next_smaller, write_memory_plan
from distxcept.training.agreement import check_equal
from distxcept.training.build import Training
from distxcept.training.out_of_memory import is_out_of_memory
from distxcept.training.own_cards import lost_card_error, places_of_devices
from distxcept.training.telling import Tell
from distxcept.training.update import Pending

OVERLAP_PAYS_AFTER = 200
"""Updates after which the longer tracing of an overlapped update has paid for itself."""


class Fitting:
    def __init__(
        self,
        training: Training,
        run_folder: Path,
        tell: Tell,
        *,
        settle: Callable[[], object],
        save: Callable[[], None],
    ):
        """`settle` is called before another plan is taken: the update before may not be read yet. `save` is called before
        this process ends."""
        self._training, self._run_folder, self._tell = training, run_folder, tell
        self._settle, self._save = settle, save
        self.plan = training.plan
        self.memory_plan = MemoryPlan(self.plan.micro_batch, training.remat)
        self._updates_in_plan = 0
        self._cards = places_of_devices(training.engine.devices())

    def run(self, number: int, update: Callable[[], Pending]) -> Pending:
        """Starts the update of this number, again in smaller steps until it fits.

        A process that is alone knows at once whether there was memory. Several ranks have to read the outcome.
        """
        try:
            while (pending := update()).failed or (
                self._training.engine.ranks > 1 and pending.read().out_of_memory
            ):
                release_memory()
                # A rank that is an update behind the others (it failed after them) would be found here.
                check_equal(self._training.update.state, "after running out of memory")
                self._shrink(number)
        except DistxceptError as error:
            if isinstance(error, LostForMemoryError):
                # TensorFlow cancels an update in the same way after a lost card, which less memory would not bring back.
                lost_card = lost_card_error(self._training.engine, self._cards)
                if lost_card is not None:
                    raise lost_card from error
                self._leave_smaller_plan(number, error)
                # Alone, and with nothing half changed, no update is lost.
                if self._training.engine.ranks == 1 and self._training.update.state.is_consistent():
                    self._save()
            raise
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            lost = LostForMemoryError("again while the update was being prepared in smaller steps")
            self._leave_smaller_plan(number, lost)
            raise lost from error
        self._updates_in_plan += 1
        return pending

    def overlaps(self, updates_of_process: int) -> bool:
        """`updates_of_process`: done and left.

        The first update after each change of plan reduces only when all its work is done: a rank that has too little memory
        can still say so.
        """
        engine, wanted = self._training.engine, self._training.config.engine.overlap
        if engine.replicas == 1 or self.plan.lanes is not None or wanted == "off":
            return False
        if self._updates_in_plan == 0:
            return False
        # Each replica of this process gets a graph of its own for it.
        pays_after = OVERLAP_PAYS_AFTER * len(engine.local_replicas)
        return wanted == "on" or updates_of_process >= pays_after

    def devices_for_images(self) -> list[str] | None:
        """Where the next update's images go ahead of it; None: its micro steps fetch them, so that they need not all fit."""
        return self._training.engine.devices() if self.plan.micro_batch >= self._most_samples() else None

    def _most_samples(self) -> int:
        """Samples of one replica in a full update, at most."""
        blocks = self.plan.blocks(self.plan.virtual_per_update)
        return max(len(block) for block in blocks) * self.plan.virtual_batch

    def _leave_smaller_plan(self, number: int, error: LostForMemoryError) -> None:
        """For the process that goes on with this run; DoesNotFitError where there is none."""
        if self._training.update.state.is_consistent():
            self._settle()
        smaller = self._smaller_plan(halve=True)
        if smaller is None:
            raise DoesNotFitError(self._nothing_smaller(number, "the last snapshot is intact")) from error
        with suppress(OSError):  # a full disk must not hide what happened
            write_memory_plan(self._run_folder, smaller, self.memory_plan, str(error))
        self._tell.happened(
            "out_of_memory",
            f"update {number} ran out of memory with {self.memory_plan}; a new process will repeat it with {smaller}, to "
            f"the same result; set {_remedy(smaller)} to start so",
            micro=smaller.micro,
            remat=smaller.remat,
        )

    def _nothing_smaller(self, number: int, saved: str) -> str:
        return (
            f"update {number} ran out of memory with {self.memory_plan}: there is no smaller plan that keeps the training "
            f"the same; {saved}; a smaller batch.virtual, model.image_size or a mixed precision would need less: see "
            "distxcept plan"
        )

    def _smaller_plan(self, *, halve: bool = False) -> MemoryPlan | None:
        now = InUse(self.memory_plan, self.plan.virtual_batch, self._most_samples())
        return next_smaller(now, remat_allowed=self._training.config.memory.remat != "off", halve=halve)

    def _shrink(self, number: int) -> None:
        self._settle()
        old, smaller = self.memory_plan, self._smaller_plan()
        if smaller is None:
            self._save()
            raise DoesNotFitError(self._nothing_smaller(number, "everything is saved"))
        self.plan = self.plan.with_micro(smaller.micro)
        smaller = MemoryPlan(self.plan.micro_batch, smaller.remat)
        self.memory_plan, self._updates_in_plan = smaller, 0
        self._tell.happened(
            "out_of_memory",
            f"update {number} ran out of memory with {old}; it runs again with {smaller}, to the same result; "
            f"set {_remedy(smaller)} to start so",
            micro=smaller.micro,
            remat=smaller.remat,
        )
        self._tell.planned(self.plan, remat=smaller.remat)


def _remedy(plan: MemoryPlan) -> str:
    return f"batch.micro={plan.micro}" + " memory.remat=on" * plan.remat
