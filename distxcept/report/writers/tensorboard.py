"""TensorBoard event files, written with what TensorFlow itself has: the tensorboard package only reads them.

RUN/tensorboard/train, RUN/tensorboard/validation    scalars under the same names, so that they lie over each other
RUN/tensorboard/validation                           images, histograms, text, hyperparameters
RUN/tensorboard/telemetry-rank-K                     devices (telemetry_files.py)
"""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distxcept.report.writers import About

HISTOGRAM_BINS = 30
HISTOGRAM_VALUES = 2**16
"""Of a larger tensor every n-th value is counted: the form is the same, and the training need not wait."""


class EventFile:
    """Written without TensorFlow's operations, so that it is safe beside a running update."""

    def __init__(self, folder: Path, updates_done: int):
        """What earlier files have of later updates is done again: TensorBoard drops it where it reads of this start."""
        import tensorflow as tf

        self._event, self._summary = tf.compat.v1.Event, tf.compat.v1.Summary
        self._metadata, self._histogram = tf.compat.v1.SummaryMetadata, tf.compat.v1.HistogramProto
        self._tensor = tf.make_tensor_proto
        folder.mkdir(parents=True, exist_ok=True)
        # The number keeps two files of one process and second apart.
        name = f"events.out.tfevents.{int(time.time()):010d}.{os.uname().nodename}.{os.getpid()}"
        self._file = tf.io.TFRecordWriter(str(folder / name))
        self._append(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        self._append(self._event(wall_time=time.time(), step=updates_done + 1, session_log=start))

    def add(self, step: int, values: list[Any], wall_time: float | None = None) -> None:
        self._append(
            self._event(wall_time=wall_time or time.time(), step=step, summary=self._summary(value=values))
        )

    def scalar(self, tag: str, value: float) -> Any:
        return self._summary.Value(tag=tag, simple_value=value)

    def image(self, tag: str, png: bytes) -> Any:
        width, height = struct.unpack(">II", png[16:24])
        picture = self._summary.Image(height=height, width=width, colorspace=3, encoded_image_string=png)
        return self._summary.Value(tag=tag, image=picture)

    def histogram(self, tag: str, values: np.ndarray) -> Any:
        """None where there is not a single finite value."""
        values = values.ravel()
        known = np.asarray(values[:: -(-values.size // HISTOGRAM_VALUES) or 1], np.float64)
        known = known[np.isfinite(known)]
        if not known.size:
            return None
        counts, edges = np.histogram(known, bins=HISTOGRAM_BINS)
        found = self._histogram(
            min=known.min(),
            max=known.max(),
            num=known.size,
            sum=known.sum(),
            sum_squares=np.square(known).sum(),
            bucket_limit=edges[1:].tolist(),
            bucket=counts.tolist(),
        )
        return self._summary.Value(tag=tag, histo=found)

    def text(self, tag: str, text: str) -> Any:
        return self._summary.Value(
            tag=tag, metadata=self._plugin("text", b""), tensor=self._tensor([text.encode()], shape=[1])
        )

    def plugin_data(self, tag: str, plugin: str, content: bytes) -> Any:
        return self._summary.Value(tag=tag, metadata=self._plugin(plugin, content))

    def _plugin(self, name: str, content: bytes) -> Any:
        return self._metadata(plugin_data=self._metadata.PluginData(plugin_name=name, content=content))

    def close(self) -> None:
        self._file.close()

    def _append(self, event: Any) -> None:
        self._file.write(event.SerializeToString())
        self._file.flush()


class TensorBoardWriter:
    def __init__(self, about: About):
        folder = about.folder / "tensorboard"
        self._files = {part: EventFile(folder / part, about.updates_done) for part in ("train", "validation")}
        self._began = time.time()
        self._hyperparameters(
            "session_start_info", start_info(about.hyperparameters, about.name, self._began)
        )

    def scalars(self, part: str, step: int, values: Mapping[str, float]) -> None:
        file = self._files[part]
        file.add(step, [file.scalar(name, value) for name, value in values.items()])

    def image(self, name: str, step: int, png: bytes, caption: str) -> None:
        file = self._files["validation"]
        file.add(step, [file.image(f"{name} ({caption})", png)])

    def histograms(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        file = self._files["validation"]
        found = [file.histogram(name, value) for name, value in values.items()]
        file.add(step, [one for one in found if one is not None])

    def text(self, name: str, step: int, text: str) -> None:
        file = self._files["validation"]
        file.add(step, [file.text(name, text)])

    def close(self, summary: Mapping[str, Any]) -> None:
        # TensorBoard keeps the first end that it reads: a run that may still go on has none.
        if summary:
            self._hyperparameters("session_end_info", end_info(time.time()))
        for file in self._files.values():
            file.close()

    def _hyperparameters(self, kind: str, content: bytes) -> None:
        file = self._files["validation"]
        file.add(0, [file.plugin_data(f"_hparams_/{kind}", "hparams", content)])


# The hyperparameters' messages come with the tensorboard package, which is not needed to write; so they are encoded here.
# HParamsPluginData: 1 version, 3 session_start_info {1 hparams: map<string, Value>, 4 group_name, 5 start_time_secs},
# 4 session_end_info {1 status: 1 success; 2 end_time_secs}. Value: 2 number, 3 string, 4 bool.


def start_info(hyperparameters: Mapping[str, Any], group: str, began: float) -> bytes:
    pairs = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _value(value)))
        for name, value in sorted(hyperparameters.items())
    )
    return _field(3, pairs + _field(4, group.encode()) + _double(5, began))


def end_info(ended_at: float) -> bytes:
    return _field(4, _number(1, 1) + _double(2, ended_at))


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return _number(4, int(value))
    if isinstance(value, int | float):
        return _double(2, float(value))
    return _field(3, str(value).encode())


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)
