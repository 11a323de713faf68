"""TFRecord shards: records and the images in them, and an index to read any sample by number."""
