"""From a config and an engine to everything that a run works with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from distxcept.batching import BatchPlan
from distxcept.checkpoint.compatibility import training_identity
from distxcept.checkpoint.names import weights_path
from distxcept.cluster.sameness import data_disagreement
from distxcept.config.schema import Config
from distxcept.data.dataset import Reading, reading_of
from distxcept.data.host import usable_cores
from distxcept.data.sources import Source, open_sources
from distxcept.engines import Engine
from distxcept.engines.devices import has_one_thread_each, one_thread_each
from distxcept.errors import ConfigError, DataError
from distxcept.memory.candidates import Situation
from distxcept.memory.estimate import EngineName
from distxcept.memory.memory_plan import MemoryPlan
from distxcept.memory.nvml import GpuState
from distxcept.memory.planning import build_plan
from distxcept.model.layout import Layout
from distxcept.model.network import GIVEN, MakeNetwork, Network
from distxcept.model.weights import load_weights
from distxcept.model.xception import Xception
from distxcept.training.choose_plan import choose_plan
from distxcept.training.evaluate import Evaluator, idle_cores, own_cores
from distxcept.training.objective import Objective
from distxcept.training.preflight import REDUCED_BYTES, preflight
from distxcept.training.update import Update


@dataclass
class Training:
    config: Config
    engine: Engine
    plan: BatchPlan
    remat: bool
    """Compute activations again in the backward pass."""
    train: Source
    validation: Source | None
    update: Update
    evaluate: Evaluator
    notices: list[str]
    data_digest: str
    reading: Reading
    """How the training data is read."""
    validation_reading: Reading

    @property
    def network(self) -> Network:
        return self.update.accumulator.model

    @property
    def situation(self) -> Situation | None:
        """For the estimate of memory; what a model that is none of ours would need is not known."""
        plan, layout = self.plan, self.network
        if not isinstance(layout, Layout):
            return None
        return Situation(
            layout=layout,
            device="cpu" if self.engine.on_cpu else "gpu",
            engine=cast(EngineName, self.engine.name),
            masked=bool(plan.samples % plan.global_batch) and self.config.data.remainder == "keep",
            threads=self.config.engine.threads or usable_cores(),
        )

    @property
    def identity(self) -> dict[str, Any]:
        """All that has a say in the weights."""
        return training_identity(self.config, self.data_digest) | dict(self.network.identity)

    @property
    def total_updates(self) -> int:
        run = self.config.run
        return run.updates if run.updates is not None else (run.epochs or 0) * self.plan.updates_per_epoch


def build_training(
    config: Config,
    engine: Engine,
    *,
    cards: Sequence[GpuState] = (),
    at_most: MemoryPlan | None = None,
    notice: Callable[[str], None] = lambda message: None,
    make_network: MakeNetwork | None = None,
) -> Training:
    """Eager. Opens the data, makes the model and its variables; nothing of the update is traced yet.

    `cards` are this process's, as read before the engine took any of their memory; `at_most` is the largest memory plan
    allowed; `notice` hears of things that take long; `make_network` makes the model where it is none of ours.
    """
    notices = preflight(engine, reduced_bytes=REDUCED_BYTES if config.memory.limit is None else 8_000_000)
    train, validation = open_sources(config.data)
    data_digest = train.digest()
    _check_same_data(engine, train, data_digest)
    classes = _classes(config, train)
    cores = own_cores(config, engine)
    plan = build_plan(config, len(train), engine.replicas, cores=cores)
    plan, memory = choose_plan(config, engine, plan, classes, cards=cards, at_most=at_most, notice=notice)
    if plan.core_each:
        one_thread_each()
    elif cores > 1 and has_one_thread_each():
        notices.append(
            "operations have one thread each since a training before this one in the same process, and this one would be "
            "faster with more: start it in a new process"
        )
    objective = Objective(classes, config.model.label_smoothing, class_weights(config, train, classes))
    model, weights = _model(config, engine, classes, make_network, notices.append)
    update = Update(config, engine, model, objective, weights)
    evaluate = Evaluator(
        engine, model, objective, update.precision, update.state, cores=idle_cores(config, engine)
    )
    return Training(
        config,
        engine,
        plan,
        memory.remat,
        train,
        validation,
        update,
        evaluate,
        notices,
        data_digest,
        reading=reading_of(config, train, training=True, processes=engine.local_ranks),
        validation_reading=reading_of(
            config, validation or train, training=False, processes=engine.local_ranks
        ),
    )


def _model(
    config: Config,
    engine: Engine,
    classes: int,
    make_network: MakeNetwork | None,
    notice: Callable[[str], None],
) -> tuple[Network, dict[str, np.ndarray]]:
    """With the values to start from. The other ranks get the chief's before the first update."""
    if make_network is None:
        ours = Xception.of(config.model, classes, dropout=config.model.dropout, on_cpu=engine.on_cpu)
        # One of the ranks reads, or downloads.
        spec = weights_path(config.model.weights)
        return ours, load_weights(spec, ours, notice=notice) if engine.is_chief else {}
    given = make_network(config)
    if given.classes != classes:
        raise ConfigError(
            f"the model has {given.classes} outputs, but the training is one of {classes} classes; give the model "
            "as many, or set model.classes (more than the data has may be)"
        )
    digests = engine.exchange(str(given.identity[GIVEN]).encode())
    if len(set(digests)) > 1:
        raise ConfigError("the ranks were given different models; start the same program everywhere")
    return given, given.values()


def class_weights(config: Config, source: Source, classes: int) -> np.ndarray | None:
    """Weight of each class in the loss. Balanced weights average to one over the samples."""
    wanted = config.model.class_weights
    if wanted is None:
        return None
    if wanted == "balanced":
        # A label out of range makes a bad sample, which is not trained on.
        labels = source.labels[source.labels >= 0]
        counts = np.bincount(labels, minlength=classes)
        present = counts > 0
        weights = np.zeros(classes)
        weights[present] = len(labels) / (present.sum() * counts[present])
        return weights
    weights = np.ones(classes)
    for key, weight in wanted.items():
        names = list(source.class_names)
        number = key if isinstance(key, int) else names.index(key) if key in names else None
        if number is None or number >= classes:
            raise ConfigError(
                f"model.class_weights names the class {key!r}; the data has {', '.join(names[:20])}"
            )
        weights[number] = weight
    return weights


def _classes(config: Config, source: Source) -> int:
    found = len(source.class_names)
    wanted = config.model.classes
    if wanted == "auto":
        return found
    if wanted < found:
        raise ConfigError(
            f"model.classes is {wanted}, but the training data has {found} classes; use auto or more"
        )
    return wanted


def _check_same_data(engine: Engine, train: Source, data_digest: str) -> None:
    """Ranks that would train on something else are refused before they start."""
    mine = f"{len(train)} samples in {len(train.class_names)} classes, digest {data_digest[:16]}"
    problem = data_disagreement([message.decode() for message in engine.exchange(mine.encode())])
    if problem:
        raise DataError(problem)
