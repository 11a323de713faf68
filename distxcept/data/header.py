"""What an image file says about itself, read from its first bytes and checked before anything is decoded.

Pure: no decoder is involved, so a lying or hostile file costs nothing here. The declared size decides whether
decoding may start at all; orientation decides where a crop lies in the stored pixels.
"""

import struct
from dataclasses import dataclass

from distxcept.data.sources.base import BadSample


@dataclass(frozen=True)
class Header:
    kind: str
    """jpeg, png, gif, bmp or webp."""
    width: int
    height: int
    orientation: int = 1
    """EXIF orientation 1 to 8 of a JPEG, PNG or WebP; 1 is upright."""
    components: int = 3
    """Colour components as stored; 4 in a JPEG is CMYK. Only told for JPEG."""

    @property
    def transposed(self) -> bool:
        """Upright width is the stored height."""
        return self.orientation >= 5

    @property
    def upright(self) -> tuple[int, int]:
        """(width, height) as a person sees the image."""
        return (self.height, self.width) if self.transposed else (self.width, self.height)


def inspect(data: bytes, *, max_pixels: int) -> Header:
    """Tells format, size and orientation, or raises `BadSample` with the reason."""
    if not data:
        raise BadSample("empty file")
    reader = next((read for magic, read in _READERS if data.startswith(magic)), None)
    if reader is None or (reader is _webp and data[8:12] != b"WEBP"):
        raise BadSample("not a JPEG, PNG, GIF, BMP or WebP image")
    try:
        header = reader(data)
    except (struct.error, IndexError):
        raise BadSample("truncated inside its header") from None
    if header.width < 1 or header.height < 1:
        raise BadSample(f"declares {header.width} × {header.height} pixels")
    if header.width * header.height > max_pixels:
        raise BadSample(
            f"declares {header.width} × {header.height} pixels, more than data.max_pixels = {max_pixels}"
        )
    return header


# EXIF orientation → (transpose, then flip up-down, then flip left-right) from stored to upright pixels.
TO_UPRIGHT = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}

_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg(data: bytes) -> Header:
    """Walks the markers up to the frame header; an EXIF block always stands before it."""
    orientation, at = 1, 2
    while True:
        if data[at] != 0xFF:
            raise BadSample("broken JPEG: no marker where one must be")
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in _STANDALONE:
            continue
        if marker in (0xD9, 0xDA):
            raise BadSample("broken JPEG: no frame before the image data")
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            raise BadSample("broken JPEG: a segment of impossible length")
        if marker in _FRAMES:
            _, height, width, components = struct.unpack_from(">BHHB", data, at + 2)
            # Decoding a crop stops early and would take a truncated file for a whole one, now and then.
            if data.rfind(b"\xff\xd9", at) < 0:
                raise BadSample("truncated JPEG: no end marker")
            return Header("jpeg", width, height, orientation, components)
        if marker == 0xE1 and data.startswith(b"Exif\0\0", at + 2):
            orientation = _exif_orientation(data[at + 8 : at + length])
        at += length


def _exif_orientation(tiff: bytes) -> int:
    """Orientation of an EXIF block; 1 if it has none or is damaged, as viewers do."""
    try:
        order = {b"II*\0": "<", b"MM\0*": ">"}[tiff[:4]]
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(entries):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * entry)
            if tag == 0x0112 and kind == 3:
                return value if 1 <= value <= 8 else 1
    except (KeyError, struct.error):
        pass
    return 1


def _png(data: bytes) -> Header:
    width, height = struct.unpack_from(">II", data, 16)
    return Header("png", width, height, _chunk_orientation(data, 8, ">I4s", b"eXIf"))


def _chunk_orientation(data: bytes, at: int, head: str, wanted: bytes) -> int:
    """Walks the chunks of a PNG or WebP file to its EXIF block, which may stand after the image."""
    while at + 8 <= len(data):
        first, second = struct.unpack_from(head, data, at)
        (length, kind) = (first, second) if isinstance(first, int) else (second, first)
        if kind == wanted:
            return _exif_orientation(data[at + 8 : at + 8 + length].removeprefix(b"Exif\0\0"))
        # A PNG chunk ends with a checksum, a WebP chunk is padded to an even length.
        at += 8 + length + (4 if wanted == b"eXIf" else length % 2)
    return 1


def _gif(data: bytes) -> Header:
    return Header("gif", *struct.unpack_from("<HH", data, 6))


def _bmp(data: bytes) -> Header:
    (size,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if size == 12 else "<ii", data, 18)
    return Header("bmp", abs(width), abs(height))


def _webp(data: bytes) -> Header:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return Header(
            "webp",
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
            _chunk_orientation(data, 12, "<4sI", b"EXIF"),
        )
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return Header("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    width, height = struct.unpack_from("<HH", data, 26)
    return Header("webp", width & 0x3FFF, height & 0x3FFF)


_READERS = (
    (b"\xff\xd8", _jpeg),
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"GIF8", _gif),
    (b"BM", _bmp),
    (b"RIFF", _webp),
)
