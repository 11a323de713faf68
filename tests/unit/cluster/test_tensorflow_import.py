import subprocess
import sys

PROGRAM = """
import sys
from distxcept.cluster.tensorflow_import import import_tensorflow
import_tensorflow()
assert "tensorflow" in sys.modules
print(sorted(name for name in sys.modules if name.split(".")[0] == "keras"))
import keras, tensorflow
print(keras.layers.Dense(3)(tensorflow.ones([2, 5])).shape, tensorflow.keras.layers.Dense is keras.layers.Dense)
"""


def test_keras_is_left_out_and_whole_when_it_is_wanted():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["[]", "(2, 3) True"]
