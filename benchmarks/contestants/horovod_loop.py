"""A contestant: the training loop that people write with Horovod and Keras 3, one rank a core.

    mpirun -np 2 python horovod_loop.py SETTING

Gradients are reduced in one group, averaged, and applied by Keras' optimizer; weights are sent from rank 0 at the start.
"""

import os
import sys

from distxcept.prove.race.peers import images_and_labels, keras_xception
from distxcept.prove.race.serve import Step, serve
from distxcept.prove.race.setting import Setting


class Ranks:
    """Messages between the ranks, for the turns."""

    def __init__(self, hvd):
        self._hvd, self.rank = hvd, hvd.rank()

    def exchange(self, message: bytes) -> list[bytes]:
        return self._hvd.allgather_object(message)


def build(setting: Setting) -> Step:
    import horovod.tensorflow as hvd

    hvd.init()
    cores = sorted(os.sched_getaffinity(0))
    if hvd.local_size() <= len(cores):
        each = len(cores) // hvd.local_size()
        os.sched_setaffinity(0, cores[hvd.local_rank() * each : (hvd.local_rank() + 1) * each])

    import keras
    import tensorflow as tf

    threads = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model = keras_xception(setting)
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images, labels = (tf.constant(array) for array in images_and_labels(setting))

    @tf.function(jit_compile=False)
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = loss_of(labels, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = hvd.grouped_allreduce(gradients, op=hvd.Average)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        right = tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        return loss, tf.reduce_sum(tf.cast(right, tf.int32))

    def run(steps: int) -> None:
        for _ in range(steps):
            loss, right = train_step(images, labels)
        float(loss), int(right)

    return Step(run, images=setting.batch * hvd.size(), group=Ranks(hvd))


if __name__ == "__main__":
    serve(lambda: build(Setting.from_json(sys.argv[-1])))
    os._exit(0)
