"""An evaluation in the middle of a run, and what follows from it: best, plateau, early stopping."""

from distxcept.training.bad_images import BadImages
from distxcept.training.build import Training
from distxcept.training.evaluate import Result
from distxcept.training.events import ValidationRecord
from distxcept.training.progress import Progress
from distxcept.training.saving import Saver
from distxcept.training.scores import SampleOutcomes
from distxcept.training.telling import Tell


class Validation:
    def __init__(self, training: Training, tell: Tell, bad_images: BadImages, saver: Saver):
        self._training, self._tell = training, tell
        self._bad_images, self._saver = bad_images, saver

    def due(self, update: int, *, epoch_ends: bool, last: bool) -> bool:
        every = self._training.config.run.evaluate_every
        due = update % every == 0 if every else epoch_ends
        return self._training.validation is not None and (due or last)

    def evaluate(self, micro_batch: int, *, update: int) -> Result:
        """Every rank has to call it. The observer gets every outcome."""
        training = self._training
        assert training.validation is not None
        outcomes = training.evaluate(
            training.validation_reading, batch_per_replica=micro_batch, on_bad=self._bad_images.found
        )
        result = result_of(outcomes)
        self._tell.predicted(outcomes, training.validation, update)
        if result.samples < len(training.validation):
            self._bad_images.report()
        return result

    def judge(self, result: Result, progress: Progress, *, epoch: int, rate: float) -> None:
        """`rate` is the learning rate of the next update."""
        config, metrics = self._training.config, result.metrics()
        metric = config.checkpoint.best_metric
        best = metric is not None and progress.best.better(metrics[metric], metric)
        if best:
            self._saver.mark_best()
        self._tell.validated(
            ValidationRecord(
                epoch=epoch,
                update=progress.update,
                samples=result.samples,
                loss=result.loss,
                accuracy=result.accuracy,
                top5_accuracy=result.top5_accuracy,
                best=best,
            )
        )
        if progress.reduce_on_plateau(config.optimizer, metrics, rate):
            self._tell.happened(
                "plateau", f"validation no longer improves: learning rate × {progress.rate_factor:g}"
            )
        if progress.stop_early(config.run.early_stopping, metrics):
            self._tell.happened(
                "early_stopping",
                f"validation has stopped improving: the run ends at update {progress.update}",
            )
        if best:
            self._saver.save(progress)


def result_of(outcomes: SampleOutcomes) -> Result:
    return Result.of_sums(
        len(outcomes.labels),
        loss=float(outcomes.losses.sum()),
        correct=float((outcomes.labels == outcomes.predicted).sum()),
        top5=float(outcomes.in_top5.sum()),
    )
