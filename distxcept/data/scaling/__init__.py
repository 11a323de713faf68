"""Bilinear scaling of uint8 images: a small kernel in C if one was built, else TensorFlow, with the same bits."""
