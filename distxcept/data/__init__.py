"""Samples from where they are stored to batches on the host: sources, order, decoding, augmentation, pipeline."""
