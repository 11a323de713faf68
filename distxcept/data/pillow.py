"""Decoding with Pillow: every format and mode that the fast path does not know."""

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from distxcept.data.header import TO_UPRIGHT, Header
from distxcept.data.sources.base import BadSample, Pixels

# Declared pixels are checked by `inspect` against data.max_pixels; Pillow's fixed limit would only add a second rule.
Image.MAX_IMAGE_PIXELS = None

_FORMATS = {"jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP"}


def decode_with_pillow(data: bytes, header: Header) -> Pixels:
    """The whole upright image as RGB. An animation gives its first frame, alpha is dropped."""
    try:
        with Image.open(io.BytesIO(data), formats=[_FORMATS[header.kind]]) as image:
            # Windows are drawn from the declared size, so another size would put them elsewhere.
            if image.size != (header.width, header.height):
                raise BadSample(f"holds {image.width} × {image.height} pixels, not what it declares")
            return turn_upright(_rgb(image), header.orientation)
    except (BadSample, MemoryError):
        raise
    except UnidentifiedImageError:  # its text has nothing but an address in memory
        raise BadSample(f"broken {header.kind.upper()}: its header makes no sense") from None
    except (
        Exception
    ) as error:  # Pillow's decoders raise whatever comes: SyntaxError, struct.error, EOFError, …
        raise BadSample(f"broken {header.kind.upper()}: {error or type(error).__name__}") from None


def _rgb(image: Image.Image) -> Pixels:
    if image.mode.startswith("I"):
        # 16-bit grayscale: keep the high byte, where Pillow's conversion would clip.
        gray = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        return np.repeat(gray[..., None], 3, axis=2)
    return np.asarray(image.convert("RGB"))


def turn_upright(pixels: Pixels, orientation: int) -> Pixels:
    """A view of stored pixels as a person sees the image."""
    transpose, flip_rows, flip_columns = TO_UPRIGHT[orientation]
    pixels = pixels.swapaxes(0, 1) if transpose else pixels
    return pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]
