"""The TFRecord format without TensorFlow: checksums, framing, examples, and an index to read any sample by number."""
