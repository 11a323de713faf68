"""Image files of every odd kind: those that must decode rightly, and those that must not, with the reason expected."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 120, 90


def picture(seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Smooth, without symmetry, with saturated colours: wrong turns, channels and scales all show."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif(orientation: int) -> bytes:
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def big_endian_exif(orientation: int) -> bytes:
    tiff = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    return b"Exif\0\0" + tiff


def png_16bit(image: Image.Image, gray: bool) -> bytes:
    """Pillow writes no 16-bit RGB, so the chunks are put together here."""
    pixels = np.asarray(image.convert("L" if gray else "RGB")).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", image.width, image.height, 16, 0 if gray else 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def good_files() -> dict[str, tuple[bytes, Image.Image, float]]:
    """name → (content, the upright RGB image it stands for, mean difference allowed in grey levels)."""
    image = picture()
    gray = image.convert("L")
    files: dict[str, tuple[bytes, Image.Image, float]] = {
        "plain.jpg": (encode(image, "JPEG", quality=95), image, 2.5),
        "progressive.jpg": (encode(image, "JPEG", quality=95, progressive=True), image, 2.5),
        "full_chroma.jpg": (encode(image, "JPEG", quality=95, subsampling=0), image, 2),
        "gray.jpg": (encode(gray, "JPEG", quality=95), gray.convert("RGB"), 2),
        "cmyk.jpg": (encode(image.convert("CMYK"), "JPEG", quality=95), image, 3),
        "trailing.jpg": (encode(image, "JPEG", quality=95) + b"\0" * 999, image, 2.5),
        "png_under.jpg": (encode(image, "PNG"), image, 0.6),
        "alpha.png": (encode(image.convert("RGBA"), "PNG"), image, 0.6),
        "gray.png": (encode(gray, "PNG"), gray.convert("RGB"), 0.6),
        "gray_alpha.png": (encode(gray.convert("LA"), "PNG"), gray.convert("RGB"), 0.6),
        "black_white.png": (encode(gray.convert("1"), "PNG"), gray.convert("1").convert("RGB"), 0.6),
        "sixteen.png": (png_16bit(image, gray=False), image, 0.6),
        "sixteen_gray.png": (png_16bit(image, gray=True), gray.convert("RGB"), 0.6),
        "still.gif": (encode(image.quantize(256), "GIF"), image.quantize(256).convert("RGB"), 0.6),
        "palette.png": (encode(image.quantize(64), "PNG"), image.quantize(64).convert("RGB"), 0.6),
        "plain.bmp": (encode(image, "BMP"), image, 0.6),
        "palette.bmp": (encode(image.quantize(64), "BMP"), image.quantize(64).convert("RGB"), 0.6),
        "lossless.webp": (encode(image, "WEBP", lossless=True), image, 0.6),
        "lossy.webp": (encode(image, "WEBP", quality=95), image, 4),
        "alpha.webp": (encode(image.convert("RGBA"), "WEBP", lossless=True), image, 0.6),
        "no_extension": (encode(image, "JPEG", quality=95), image, 2.5),
    }
    frames = [picture(seed).quantize(256) for seed in (0, 1)]
    moving = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    files["moving.gif"] = (moving, frames[0].convert("RGB"), 0.6)
    turns = [None, None, *(getattr(Image.Transpose, name) for name in _UNDO)]
    for orientation in range(1, 9):
        turn = turns[orientation]
        stored = image if turn is None else image.transpose(turn)
        block = big_endian_exif(orientation) if orientation % 2 else exif(orientation)
        files[f"turned{orientation}.jpg"] = (encode(stored, "JPEG", quality=95, exif=block), image, 2.5)
    files["turned6.png"] = (encode(image.transpose(turns[6]), "PNG", exif=exif(6)), image, 0.6)
    turned = image.transpose(turns[8])
    files["turned8.webp"] = (encode(turned, "WEBP", lossless=True, exif=exif(8)), image, 0.6)
    files["turned5.cmyk.jpg"] = (
        encode(image.transpose(turns[5]).convert("CMYK"), "JPEG", quality=95, exif=exif(5)), image, 3
    )  # fmt: skip
    return files


# What must be done to an upright image so that orientations 2 to 8 turn it back.
_UNDO = (
    "FLIP_LEFT_RIGHT",
    "ROTATE_180",
    "FLIP_TOP_BOTTOM",
    "TRANSPOSE",
    "ROTATE_90",
    "TRANSVERSE",
    "ROTATE_270",
)


def bad_files() -> dict[str, tuple[bytes, str]]:
    """name → (content, a part of the reason that must be given)."""
    image = picture(9)
    jpeg, png = encode(image, "JPEG", quality=95), encode(image, "PNG")
    gif, bmp, webp = encode(image.quantize(64), "GIF"), encode(image, "BMP"), encode(image, "WEBP")
    bomb_png = png[:16] + struct.pack(">II", 60_000, 60_000) + png[24:]
    frame = jpeg.index(b"\xff\xc0")
    bomb_jpeg = jpeg[: frame + 5] + struct.pack(">HH", 65_000, 65_000) + jpeg[frame + 9 :]
    half = len(jpeg) // 2
    return {
        "empty.jpg": (b"", "empty"),
        "text.jpg": (b"<html>404 not found</html>", "not a JPEG"),
        "truncated.jpg": (jpeg[:half], "truncated"),
        "truncated_head.jpg": (jpeg[:20], "truncated"),
        "holed.jpg": (jpeg[: frame + 2] + b"\xff\xd9", "truncated"),
        "no_frame.jpg": (b"\xff\xd8\xff\xd9", "no frame"),
        "truncated.png": (png[: len(png) // 2], "PNG"),
        "flipped.png": (png[:60] + bytes([png[60] ^ 0xFF]) + png[61:], "PNG"),
        "truncated.gif": (gif[:30], "GIF"),
        "truncated.bmp": (bmp[: len(bmp) // 2], "BMP"),
        "truncated.webp": (webp[: len(webp) // 2], "WEBP"),
        "bomb.png": (bomb_png, "60000 × 60000 pixels"),
        "bomb.jpg": (bomb_jpeg, "65000 × 65000 pixels"),
        "bomb.gif": (b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + gif[10:], "65000 × 65000 pixels"),
        "bomb.bmp": (bmp[:18] + struct.pack("<ii", 60_000, -60_000) + bmp[26:], "60000 × 60000 pixels"),
        "bomb.webp": (webp[:26] + struct.pack("<HH", 16_383, 16_383) + webp[30:], "16383 × 16383 pixels"),
        "flat.png": (png[:16] + struct.pack(">II", 0, 5) + png[24:], "0 × 5 pixels"),
    }


def write_bad_files(folder: Path) -> dict[str, str]:
    """Writes them all; returns name → part of the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (content, _) in bad_files().items():
        (folder / name).write_bytes(content)
    return {name: reason for name, (_, reason) in bad_files().items()}
