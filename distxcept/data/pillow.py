"""Decoding with Pillow: every format and mode that the fast road does not know, and all of them without TensorFlow."""

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from distxcept.data.header import Header
from distxcept.data.sources.base import BadSample, Pixels

# Declared pixels are checked by `inspect` against data.max_pixels; Pillow's fixed limit would only add a second rule.
Image.MAX_IMAGE_PIXELS = None

_FORMATS = {"jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP"}


def decode_with_pillow(data: bytes, header: Header) -> Pixels:
    """The whole upright image as RGB. An animation gives its first frame, alpha is dropped."""
    try:
        with Image.open(io.BytesIO(data), formats=[_FORMATS[header.kind]]) as image:
            if image.width * image.height > header.width * header.height:
                raise BadSample(f"holds {image.width} × {image.height} pixels, more than it declares")
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I"):
                # 16-bit grayscale: keep the high byte, where Pillow's conversion would clip.
                gray = (np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
                return np.repeat(gray[..., None], 3, axis=2)
            return np.asarray(upright.convert("RGB"))
    except BadSample:
        raise
    except UnidentifiedImageError:  # its text has nothing but an address in memory
        raise BadSample(f"broken {header.kind.upper()}: its header makes no sense") from None
    except (
        Exception
    ) as error:  # Pillow's decoders raise whatever comes: SyntaxError, struct.error, EOFError, …
        raise BadSample(f"broken {header.kind.upper()}: {error or type(error).__name__}") from None
