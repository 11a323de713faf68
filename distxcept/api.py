"""The Python interface: `Trainer` trains what a config describes, `Run` uses what came out. For notebooks and scripts.

Everything goes the way of the command line: the same config, run folder, snapshots, lock and stop on request. So a run
that was begun in a notebook may go on under mpirun, and the other way round. TensorFlow is imported when work begins.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from distxcept.cluster import detect
from distxcept.cluster.status import read_status
from distxcept.config.load import as_config, load_config
from distxcept.config.own_model import overrides_for_own_model
from distxcept.config.schema import Config
from distxcept.config.yaml_text import dump_yaml
from distxcept.errors import ConfigError, DistxceptError, StopRequested
from distxcept.model.network import GivenNetwork, MakeNetwork, is_function
from distxcept.training.events import Observer as Callback

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from distxcept.export.exporting import Exported
    from distxcept.model.keras_function import KerasNetwork
    from distxcept.report.runs import Run as RunFolder
    from distxcept.training.predict import Prediction, Predictor
    from distxcept.training.scores import Scores
    from distxcept.training.trained import Trained

__all__ = ["Callback", "Run", "Trainer", "input_dataset"]

Overrides = Mapping[str, Any]
FIRST_RANK_SECONDS = 60.0


def _as_yaml(value: Any) -> str:
    """JSON is YAML, but for characters beyond 16 bits that are written as two escapes."""
    return json.dumps(value, ensure_ascii=False, default=os.fspath)


def _wait_for_first_rank(folder: Path) -> None:
    """It alone writes what the run says of itself, and may come to its end a moment after the others."""
    if detect(os.environ).rank == 0:
        return
    deadline = time.monotonic() + FIRST_RANK_SECONDS
    while time.monotonic() < deadline:
        first = read_status(folder, 0)
        if first is None or first.ended:
            return
        time.sleep(0.05)


def _make_network(model: Any) -> MakeNetwork:
    def make(config: Config) -> "KerasNetwork":
        from distxcept.model.keras_function import KerasNetwork

        return KerasNetwork.of(model, config)

    return make


def input_dataset(
    config: Config | Mapping[str, Any] | str | os.PathLike[str],
    *,
    split: str = "train",
    replica: int = 0,
    replicas: int = 1,
    first_update: int = 0,
) -> "tf.data.Dataset":
    """The `tf.data.Dataset` that a run feeds to one replica, for a training loop of your own.

    An element is the replica's part of one update: a dict of `images` uint8 [n, v, height, width, 3], `labels` and
    `weights` [n, v] (a sample of weight 0 must not count), and `indices` [n, v]: n virtual batches of v samples. A short
    update may have fewer. `train` runs from `first_update` to the end of the run; `validation` gives each sample once.
    """
    import tensorflow as tf

    from distxcept.batching import plan_batches
    from distxcept.data.dataset import reading_of, replica_dataset
    from distxcept.data.sources import open_split

    config = as_config(config)
    if split not in ("train", "validation"):
        raise ConfigError(f"there is no split {split!r}; there are train and validation")
    if not 0 <= replica < replicas:
        raise ConfigError(f"replica is {replica}, but there are {replicas}; count them from 0")
    source = open_split(config.data, split)
    if source is None:
        raise ConfigError(
            "the config has no validation data; set data.validation or data.validation_fraction"
        )
    training, batch = split == "train", config.batch
    plan = plan_batches(
        samples=len(source),
        global_batch=batch.global_,
        virtual_batch=batch.virtual,
        micro_batch=batch.virtual,
        replicas=replicas,
        shares=config.engine.shares,
        keep_remainder=not training or config.data.remainder == "keep",
        lanes=config.engine.lanes if training and config.engine.reduction == "ordered" else None,
    )
    updates = plan.updates_per_epoch
    if training:
        updates = config.run.updates or (config.run.epochs or 0) * plan.updates_per_epoch
    if not 0 <= first_update <= updates:
        raise ConfigError(f"first_update is {first_update}, but there are {updates} updates")
    reading = reading_of(config, source, training=training)
    dataset = replica_dataset(reading, plan, replica, first=first_update, updates=updates - first_update)
    names = ("images", "labels", "weights", "indices")
    named = tf.autograph.experimental.do_not_convert(
        lambda batch: {name: getattr(batch, name) for name in names}
    )
    return dataset.map(named)


class Trainer:
    """`Trainer("configs/finetune.yaml", {"data.train.path": "photos/train"}).train()`

    `config` is a YAML file or a nested mapping; `overrides` wins over it, by dotted key. A mistake in it raises
    ConfigError here, not later. Callbacks hear of every update, record, evaluation and event, on the chief only.
    `model` is a Keras model to train instead of Xception, or a function that builds it once the devices are ready.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any],
        overrides: Overrides | None = None,
        *,
        model: Any = None,
        callbacks: Sequence[Callback] = (),
        quiet: bool = False,
        allow_config_change: bool = False,
    ):
        self._text = dump_yaml(dict(config)) if isinstance(config, Mapping) else None
        self._file = "run.yaml" if isinstance(config, Mapping) else os.fspath(config)
        self._overrides = [f"{key}={_as_yaml(value)}" for key, value in (overrides or {}).items()]
        self._callbacks = tuple(callbacks)
        self._flags = ["--quiet"] * quiet + ["--allow-config-change"] * allow_config_change
        self.config: Config = self._with_file(lambda file: load_config(file, self._overrides))
        self._model = model
        if model is not None:
            self._overrides += overrides_for_own_model(self.config)
            self.config = self._with_file(lambda file: load_config(file, self._overrides))
            if not is_function(model):
                _make_network(model)(self.config)  # to tell of mistakes now

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        return Path(self.config.run.dir) / self.config.run.name

    def train(self) -> "Run":
        """Trains to the end, or goes on where the run stopped. Stopped on request (Ctrl-C, interrupting the kernel),
        it returns as well, with everything saved: `Run.finished` tells, and calling again goes on."""
        from distxcept.cli.main import build_parser

        def start(file: str) -> None:
            arguments = ["train", file, *self._overrides, *self._flags]
            args = build_parser().parse_args(arguments)
            args.callbacks = self._callbacks
            if self._model is not None:
                args.make_network = _make_network(self._model)
            code = args.run(args)
            if code not in (0, StopRequested.exit_code):
                raise DistxceptError(f"the run ended with exit code {code}; see {self.folder / 'logs'}")

        with suppress(StopRequested):
            self._with_file(start)
        _wait_for_first_rank(self.folder)
        return Run(self.folder, model=self._model)

    def _with_file(self, action: Any) -> Any:
        """The config as a file, because files have lines that an error can name."""
        if self._text is None:
            return action(self._file)
        with tempfile.TemporaryDirectory(prefix="distxcept-") as folder:
            path = Path(folder) / self._file
            path.write_text(self._text, encoding="utf-8")
            return action(str(path))


class Run:
    """A run folder, or one snapshot of it: `Run("runs/flowers")`, `Run("runs/flowers:best")`.

    The model is loaded at the first use, from numbers and names alone; one of your own has to be given again.
    """

    def __init__(self, name: str | os.PathLike[str], *, model: Any = None, config_file: str | None = None):
        self.name = os.fspath(name)
        self._model, self._config_file = model, config_file

    @cached_property
    def trained(self) -> "Trained":
        from distxcept.training.trained import find_trained

        make_network = None if self._model is None else _make_network(self._model)
        return find_trained(self.name, config_file=self._config_file, make_network=make_network)

    @property
    def config(self) -> Config:
        return self.trained.config

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.trained.class_names

    @property
    def update(self) -> int:
        """Updates that are done in the snapshot."""
        return self.trained.snapshot.update

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self._written is not None and self._written.state() == "done"

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, ready for a data frame; `kind` is train or validation."""
        metrics = self._written.metrics if self._written else []
        return [entry for entry in metrics if kind in (None, entry.get("kind"))]

    def predict(
        self, images: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, top: int = 1
    ) -> list["Prediction"]:
        """One entry for each file, folders searched; `error` tells where a file could not be read."""
        from distxcept.data.loose_files import find_files

        names = [images] if isinstance(images, (str, os.PathLike)) else images
        files = find_files(os.fspath(name) for name in names)
        return list(self._predictor.predict_files(files, batch=self.trained.batch, top=top))

    def probabilities(self, images: "np.ndarray") -> "np.ndarray":
        """[n, classes], of uint8 images [n, size, size, 3] that are cut and scaled already."""
        size = self.config.model.image_size
        if images.ndim != 4 or images.shape[1:] != (size, size, 3) or images.dtype != "uint8":
            raise ConfigError(
                f"images are {images.dtype} {images.shape}; expected uint8 (n, {size}, {size}, 3); "
                "files of any size: predict()"
            )
        return self._predictor.probabilities(images)

    def evaluate(self, *, split: str | None = None, data: str | os.PathLike[str] | None = None) -> "Scores":
        """Of a split of the run's data (validation, or train), or of a folder with one sub-folder per class."""
        from distxcept.data.sources import open_for_scores
        from distxcept.training.inference import evaluate_trained

        folder = None if data is None else os.fspath(data)
        source = open_for_scores(self.config.data, self.class_names, split=split, folder=folder)
        return evaluate_trained(self.trained, self._engine, source)

    def export(
        self,
        form: str,
        output: str | os.PathLike[str] | None = None,
        *,
        quantize: str | None = None,
        data: str | os.PathLike[str] | None = None,
        force: bool = False,
    ) -> "Exported":
        """As `distxcept export`; `form` is keras, savedmodel, tflite or onnx."""
        if self._model is not None:
            raise ConfigError(
                "only Xception is exported; a model of your own is Keras' business: keras_model().save"
            )
        from distxcept.export.exporting import export, export_data, export_path
        from distxcept.export.order import Order

        order = Order(form, quantize)
        checked, training_data = export_data(self.trained, order, None if data is None else os.fspath(data))
        path = export_path(self.trained, order, output)
        return export(self._predictor, order, path, data=checked, training_data=training_data, force=force)

    def keras_model(self) -> Any:
        """The Keras model that was given, with the weights of the snapshot in it."""
        if self._model is None:
            raise ConfigError('only with model= there is one; Xception as a Keras file: export("keras")')
        _ = self._engine
        return cast(GivenNetwork, self.trained.network).put(self.trained.weights())

    @property
    def _written(self) -> "RunFolder | None":
        """What the run has written, as it is now."""
        from distxcept.report.runs import Run as RunFolder

        folder = self.trained.run_folder
        return None if folder is None else RunFolder(folder)

    @cached_property
    def _engine(self) -> Any:
        from distxcept.cluster import detect
        from distxcept.cluster.tensorflow_import import import_tensorflow
        from distxcept.launch.environment import prepare_environment

        prepare_environment(self.config, verbose=False)
        import_tensorflow()
        from distxcept.training.predict import one_device

        return one_device(self.config.engine, detect(os.environ))

    @cached_property
    def _predictor(self) -> "Predictor":
        from distxcept.training.predict import Predictor

        return Predictor(self.trained, self._engine)
