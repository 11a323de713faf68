"""A hand-written training until the end of its first step, with a clock at each stage.

python start_loop.py IMAGES IMAGE_SIZE BATCH WIDTH
"""

import json
import os
import sys
import time

BEGAN = float(os.environ["BENCH_BEGAN"])
STAGES: dict[str, float] = {"python": time.time() - BEGAN}
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Keras tells how many files it has found
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main() -> None:
    folder, size, batch, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    clock = time.time()
    import keras
    import tensorflow as tf

    from distxcept.prove.race.peers import keras_xception
    from distxcept.prove.race.setting import Setting

    STAGES["imports"], clock = time.time() - clock, time.time()
    data = keras.utils.image_dataset_from_directory(
        folder, image_size=(size, size), batch_size=batch, shuffle=True, seed=0
    )
    data = data.map(lambda images, labels: (images / 127.5 - 1.0, labels)).repeat().prefetch(2)
    batches = iter(data)
    STAGES["data index"], clock = time.time() - clock, time.time()
    model = keras_xception(Setting(size, batch, width=width))
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    STAGES["model"], clock = time.time() - clock, time.time()

    @tf.function(jit_compile=False)
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    seconds, ended = [], []
    for _ in range(2):
        images, labels = next(batches)
        began = time.time()
        float(train_step(images, labels))
        ended.append(time.time())
        seconds.append(ended[-1] - began)
    STAGES["trace"] = max(0.0, seconds[0] - seconds[1])
    STAGES["first update itself"] = min(seconds)
    STAGES["rest"] = max(0.0, ended[0] - BEGAN - sum(STAGES.values()))
    STAGES["all"] = ended[0] - BEGAN
    print(json.dumps(STAGES), file=ANSWERS, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
