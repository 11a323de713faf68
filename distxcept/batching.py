"""All batch arithmetic, pure: which positions of the epoch order an update takes, and who computes them.

    update u           positions [u·G, u·G + real)              real = min(G, N − u·G)
    virtual batch j    positions [u·G + j·v, u·G + (j+1)·v)      the last one may be padded with weight zero
    replica k          a contiguous block of the update's virtual batches
    micro step         up to micro/virtual virtual batches of the replica's block, run at once
    part               what of a micro step is one batch: all of it, or on a CPU what one core computes

Nothing here knows about rank, process or device beyond the number of replicas, their shares and the cores of a CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from distxcept.errors import ConfigError

MAX_PACK_BYTES = 32 * 2**20
"""Of gradients that travel between replicas at once: the first leave while others are still computed."""
PART_SAMPLES = 8
"""Samples that a part should have: on fewer a core is slower, more only take memory."""
IDLE_CORES = 1.05
"""The last parts of an update may leave cores idle, if all of it takes no more than this times what busy cores would."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How the samples of every update are split. Construct it by `plan_batches`, which checks it."""

    samples: int
    global_batch: int
    virtual_batch: int
    micro_batch: int
    replicas: int
    shares: tuple[int, ...]
    keep_remainder: bool = True
    lanes: int | None = None
    """Number of fixed summation lanes of the ordered reduction; None for the fast one."""
    cores: int = 1
    """Cores of the CPU that the virtual batches of a micro step are spread over."""

    @property
    def virtual_per_update(self) -> int:
        """Virtual batches of a full update."""
        return self.global_batch // self.virtual_batch

    @property
    def virtual_per_micro(self) -> int:
        """Virtual batches that one micro step runs at once."""
        return self.micro_batch // self.virtual_batch

    @property
    def updates_per_epoch(self) -> int:
        full, rest = divmod(self.samples, self.global_batch)
        return full + (1 if rest and self.keep_remainder else 0)

    @property
    def samples_per_epoch(self) -> int:
        """Samples that an epoch really uses: all of them, unless the remainder is dropped."""
        return min(self.samples, self.updates_per_epoch * self.global_batch)

    def real_samples(self, update: int) -> int:
        """Real samples of update `update`, counted within the epoch."""
        if not 0 <= update < self.updates_per_epoch:
            raise IndexError(f"update {update} is outside of the epoch's {self.updates_per_epoch} updates")
        return min(self.global_batch, self.samples - update * self.global_batch)

    def virtual_batches(self, update: int) -> int:
        """Virtual batches of update `update`; the last one may be partly padding."""
        return -(-self.real_samples(update) // self.virtual_batch)

    def block(self, update: int, replica: int) -> range:
        """The virtual batches of the update that the replica computes."""
        return self.blocks(self.virtual_batches(update))[replica]

    def blocks(self, virtual_batches: int) -> list[range]:
        """Deals virtual batches to the replicas in contiguous blocks."""
        if self.lanes is None:
            return split_contiguous(virtual_batches, self.shares)
        lanes = self.lane_blocks(virtual_batches)
        per_replica = self.lanes // self.replicas
        return [
            range(lanes[k * per_replica].start, lanes[(k + 1) * per_replica - 1].stop)
            for k in range(self.replicas)
        ]

    def lane_blocks(self, virtual_batches: int) -> list[range]:
        """The virtual batches of each summation lane: a function of the update alone, not of the replicas."""
        if self.lanes is None:
            raise ValueError("the fast reduction has no lanes")
        return split_contiguous(virtual_batches, (1,) * self.lanes)

    def local_lane_bounds(self, virtual_batches: int, replica: int) -> list[int]:
        """Bounds of the replica's lanes within its block; empty without lanes."""
        if self.lanes is None:
            return []
        per_replica = self.lanes // self.replicas
        lanes = self.lane_blocks(virtual_batches)[replica * per_replica : (replica + 1) * per_replica]
        return [lane.start - lanes[0].start for lane in lanes] + [lanes[-1].stop - lanes[0].start]

    def micro_steps(self, virtual_batches: int) -> list[int]:
        """Sizes, in virtual batches, of the micro steps that run a block of `virtual_batches`."""
        full, rest = divmod(virtual_batches, self.virtual_per_micro)
        return [self.virtual_per_micro] * full + ([rest] if rest else [])

    @property
    def _virtual_for_a_core(self) -> int:
        return max(1, min(-(-PART_SAMPLES // self.virtual_batch), self.virtual_per_micro // self.cores))

    @property
    def core_each(self) -> bool:
        """Whether parts keep all cores busy, one each; else operations have the cores, one after the other."""
        if not 1 < self.cores <= self.virtual_per_micro:
            return False
        part, most = (
            self._virtual_for_a_core,
            max(len(block) for block in self.blocks(self.virtual_batches(0))),
        )
        full, rest = divmod(most, part)
        # A last part that is smaller runs alone, after the others.
        return (-(-full // self.cores) * part + rest) * self.cores <= IDLE_CORES * most

    @property
    def virtual_per_part(self) -> int:
        return self._virtual_for_a_core if self.core_each else self.virtual_per_micro

    @property
    def side_by_side(self) -> int:
        """Parts that run at once."""
        return self.cores if self.core_each else 1

    def parts(self, virtual_batches: int) -> list[int]:
        """Sizes, in virtual batches, of the parts of a block of `virtual_batches`."""
        full, rest = divmod(virtual_batches, self.virtual_per_part)
        return [self.virtual_per_part] * full + ([rest] if rest else [])

    @property
    def max_micro_steps(self) -> int:
        """Micro steps of the busiest replica in a full update."""
        return max(len(self.micro_steps(len(block))) for block in self.blocks(self.virtual_per_update))

    def with_micro(self, micro_batch: int) -> "BatchPlan":
        """The same updates, cut into other micro steps."""
        return plan_batches(
            samples=self.samples,
            global_batch=self.global_batch,
            virtual_batch=self.virtual_batch,
            micro_batch=micro_batch,
            replicas=self.replicas,
            shares=self.shares,
            keep_remainder=self.keep_remainder,
            lanes=self.lanes,
            cores=self.cores,
        )

    def equation(self) -> str:
        """The batch arithmetic in words a person checks at a glance."""
        blocks = self.blocks(self.virtual_per_update)
        sizes = sorted({len(block) * self.virtual_batch for block in blocks}, reverse=True)
        each = " or ".join(str(size) for size in sizes)
        return (
            f"global {self.global_batch} = {self.replicas} replica{'s' * (self.replicas > 1)} × {each} samples, "
            f"in {self.max_micro_steps} micro step{'s' * (self.max_micro_steps > 1)} of up to {self.micro_batch}"
            f"{f', {self.side_by_side} parts side by side' * (self.side_by_side > 1)}; "
            f"batch norm over {self.virtual_batch}"
        )


def split_contiguous(items: int, shares: Sequence[int]) -> list[range]:
    """Splits `range(items)` into contiguous blocks in proportion to the shares; equal shares differ by at most one."""
    total = sum(shares)
    bounds = [items * below // total for below in accumulate(shares, initial=0)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def plan_batches(
    *,
    samples: int,
    global_batch: int,
    virtual_batch: int,
    micro_batch: int,
    replicas: int = 1,
    shares: Sequence[int] | None = None,
    keep_remainder: bool = True,
    lanes: int | None = None,
    cores: int = 1,
) -> BatchPlan:
    """Checks the numbers and returns the plan; an error prints the equation that fails and what would work."""
    sizes = {"batch.global": global_batch, "batch.virtual": virtual_batch, "batch.micro": micro_batch}
    for name, value in {**sizes, "samples": samples, "replicas": replicas}.items():
        if value < 1:
            raise ConfigError(f"{name} = {value}, but it must be at least 1")
    if global_batch % virtual_batch:
        raise ConfigError(
            f"batch.global / batch.virtual = {global_batch} / {virtual_batch} = "
            f"{global_batch // virtual_batch} remainder {global_batch % virtual_batch}, but the virtual batch must "
            f"divide the global batch; virtual batches that work: {_list(_near_divisors(global_batch, virtual_batch))}; "
            f"global batches that work: {_list(_near_multiples(virtual_batch, global_batch))}"
        )
    if micro_batch % virtual_batch:
        raise ConfigError(
            f"batch.micro / batch.virtual = {micro_batch} / {virtual_batch} = {micro_batch // virtual_batch} remainder "
            f"{micro_batch % virtual_batch}, but a micro batch holds whole virtual batches; micro batches that "
            f"work: {_list(_near_multiples(virtual_batch, micro_batch))}"
        )
    if micro_batch > global_batch:
        raise ConfigError(
            f"batch.micro = {micro_batch} is larger than batch.global = {global_batch}; "
            f"use at most batch.micro={global_batch}"
        )
    if not keep_remainder and samples < global_batch:
        raise ConfigError(
            f"samples / batch.global = {samples} / {global_batch} gives no full update and data.remainder is drop; "
            f"use data.remainder=keep or batch.global of at most {samples}"
        )
    shares = _check_shares(shares, replicas)
    if lanes is not None:
        _check_lanes(lanes, replicas, micro_batch, virtual_batch)
    plan = BatchPlan(
        samples=samples,
        global_batch=global_batch,
        virtual_batch=virtual_batch,
        micro_batch=micro_batch,
        replicas=replicas,
        shares=shares,
        keep_remainder=keep_remainder,
        lanes=lanes,
        cores=cores,
    )
    # More than the cores compute at once would take memory for nothing.
    return replace(plan, micro_batch=plan.side_by_side * plan.virtual_per_part * virtual_batch)


def _check_shares(shares: Sequence[int] | None, replicas: int) -> tuple[int, ...]:
    if shares is None:
        return (1,) * replicas
    if len(shares) != replicas:
        raise ConfigError(
            f"engine.shares has {len(shares)} entries for {replicas} replicas; give one share for each replica"
        )
    if any(share < 0 for share in shares) or not sum(shares):
        raise ConfigError(f"engine.shares = {list(shares)}, but shares are not negative and not all zero")
    return tuple(shares)


def _check_lanes(lanes: int, replicas: int, micro_batch: int, virtual_batch: int) -> None:
    if lanes % replicas:
        usable = [n for n in range(1, lanes + 1) if lanes % n == 0]
        raise ConfigError(
            f"engine.lanes / replicas = {lanes} / {replicas} = {lanes // replicas} remainder {lanes % replicas}, but "
            f"ordered reduction needs replicas that divide the lanes: {_list(usable)} (or other engine.lanes, which "
            "gives other bits)"
        )
    if micro_batch != virtual_batch:
        raise ConfigError(
            f"batch.micro = {micro_batch} and batch.virtual = {virtual_batch}, but ordered reduction sums one virtual "
            f"batch at a time; set batch.micro={virtual_batch}"
        )


def _near_divisors(number: int, wanted: int) -> list[int]:
    """Up to four divisors of `number` closest to `wanted`."""
    divisors = {
        d for small in range(1, int(number**0.5) + 1) if number % small == 0 for d in (small, number // small)
    }
    return sorted(sorted(divisors, key=lambda d: (abs(d - wanted), d))[:4])


def _near_multiples(factor: int, wanted: int) -> list[int]:
    """The multiples of `factor` on both sides of `wanted`."""
    below = wanted // factor * factor
    return [multiple for multiple in (below, below + factor) if multiple]


def _list(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)
