"""From a stored sample to a square of pixels: a window of the image, scaled to the model's size.

JPEG takes the fast road: the window is cut while decoding, at the smallest of the scales 1/8, 1/4, 1/2, 1 that
still covers the target, for a group of images in one call where the kernel is there. Everything else goes through
Pillow, which knows palettes, 16 bits, alpha and CMYK. Both end in the same bilinear scaling: see `scaling/`. Runs in
the pipeline's threads, outside of any graph, so that an error is an exception of one sample and never of the run.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from distxcept.data.augment import View
from distxcept.data.header import Header, inspect
from distxcept.data.pillow import decode_with_pillow
from distxcept.data.scaling.bilinear import copy_into, scale_into
from distxcept.data.scaling.jpeg import Crop, Job, decode_with_tensorflow, group_kernel
from distxcept.data.sources.base import Pixels, Sample
from distxcept.data.window import Choose, Window

MAX_SIDE = 65_535
"""No JPEG is larger: asking for this size means full scale."""

# EXIF orientation → (transpose, then flip up-down, then flip left-right) from stored to upright pixels.
_TO_UPRIGHT = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


def render(sample: Sample, view: View, out: Pixels, *, max_pixels: int) -> int:
    """Fills `out` [size, size, 3] with this view of the sample; raises `BadSample` with the reason.

    Returns how many pixels the stored image has.
    """
    size = out.shape[0]
    if sample.encoded is None:
        assert sample.pixels is not None
        height, width = sample.pixels.shape[:2]
        patch = _cut(sample.pixels, view.choose)
    else:
        header = inspect(sample.encoded, max_pixels=max_pixels)
        width, height = header.width, header.height
        if _takes_the_fast_road(header):
            patch = _decode_jpeg(sample.encoded, header, view.choose, size)
        else:
            patch = _cut(decode_with_pillow(sample.encoded, header), view.choose)
    _scale(patch, out, view.flip)
    _apply(view, out)
    return width * height


def render_all(
    samples: Sequence[Sample], views: Sequence[View], outs: Sequence[Pixels], *, max_pixels: int
) -> list[int | Exception]:
    """`render` for a group: for each its stored pixels, or the exception. Upright JPEG images share one call."""
    results: list[int | Exception] = [0] * len(samples)
    kernel = group_kernel()
    jobs: dict[int, Job] = {}
    for place, (sample, view, out) in enumerate(zip(samples, views, outs, strict=True)):
        try:
            job = _job(sample, view, out, max_pixels) if kernel else None
            if job is None:
                results[place] = render(sample, view, out, max_pixels=max_pixels)
            else:
                jobs[place], results[place] = job
        except Exception as error:  # whatever happens to a sample is its own matter
            results[place] = error
    if kernel and jobs:
        for place, failed in zip(jobs, kernel(list(jobs.values())), strict=True):
            try:
                if failed is not None:
                    raise failed
                _apply(views[place], outs[place])
            except Exception as error:  # as above
                results[place] = error
    return results


def _job(sample: Sample, view: View, out: Pixels, max_pixels: int) -> tuple[Job, int] | None:
    """What the kernel has to do for it and how many pixels are stored; None if it cannot."""
    if sample.encoded is None:
        return None
    header = inspect(sample.encoded, max_pixels=max_pixels)
    if not _takes_the_fast_road(header) or header.orientation != 1:
        return None
    crop = _crop(header, view.choose, out.shape[0])
    if _reduction(crop.height, crop.width, out.shape[0]) > 1:
        return None
    return Job(sample.encoded, crop, view.flip, out), header.width * header.height


def revise(square: Pixels, view: View, out: Pixels) -> None:
    """Flip and effects, on an image that already has its size."""
    copy_into(out, square, mirrored=view.flip)
    _apply(view, out)


def _apply(view: View, out: Pixels) -> None:
    if view.effects:
        pixels = out
        for effect in view.effects:
            pixels = effect(pixels)
        out[...] = pixels


def decode_whole(sample: Sample, *, max_pixels: int) -> Pixels:
    """The whole upright image as RGB, in its own size: for caches, checks and previews."""
    if sample.encoded is None:
        assert sample.pixels is not None
        return sample.pixels
    header = inspect(sample.encoded, max_pixels=max_pixels)
    if _takes_the_fast_road(header):
        return _decode_jpeg(
            sample.encoded, header, lambda width, height: Window(0, 0, height, width), MAX_SIDE
        )
    return decode_with_pillow(sample.encoded, header)


def _takes_the_fast_road(header: Header) -> bool:
    return header.kind == "jpeg" and header.components in (1, 3)


def _decode_jpeg(data: bytes, header: Header, choose: Choose, size: int) -> Pixels:
    pixels = decode_with_tensorflow(data, _crop(header, choose, size))
    if header.orientation == 1:
        return pixels
    transpose, flip_rows, flip_columns = _TO_UPRIGHT[header.orientation]
    pixels = pixels.swapaxes(0, 1) if transpose else pixels
    return pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]


def _crop(header: Header, choose: Choose, size: int) -> Crop:
    """The chosen window in stored pixels, at the smallest scale that still covers the target."""
    width, height = header.upright
    window = choose(width, height)
    ratio = next((r for r in (8, 4, 2) if min(window.height, window.width) >= r * size), 1)
    transpose, flip_rows, flip_columns = _TO_UPRIGHT[header.orientation]
    top = height - window.top - window.height if flip_rows else window.top
    left = width - window.left - window.width if flip_columns else window.left
    bottom, right = -(-(top + window.height) // ratio), -(-(left + window.width) // ratio)
    top, left = top // ratio, left // ratio
    if transpose:
        return Crop(left, top, right - left, bottom - top, ratio)
    return Crop(top, left, bottom - top, right - left, ratio)


def _cut(pixels: Pixels, choose: Choose) -> Pixels:
    window = choose(pixels.shape[1], pixels.shape[0])
    return pixels[window.top : window.top + window.height, window.left : window.left + window.width]


def _scale(patch: Pixels, out: Pixels, mirrored: bool) -> None:
    reduction = _reduction(patch.shape[0], patch.shape[1], out.shape[0])
    if reduction > 1:
        # Averaging whole blocks first, as the JPEG scales do: bilinear scaling alone would skip pixels.
        patch = np.asarray(Image.fromarray(patch).reduce(reduction))
    scale_into(patch, out, mirrored)


def _reduction(height: int, width: int, size: int) -> int:
    return min(height, width) // size
