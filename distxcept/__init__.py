"""Multi-GPU training of Xception on TensorFlow: the config defines every weight update."""

__version__ = "0.1.0"
