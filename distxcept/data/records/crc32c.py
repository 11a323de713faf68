"""CRC-32C, the checksum of TFRecord files, in numpy.

A checksum is linear in its input, so a long input is cut into rows that run side by side, one byte of each at a
time; the results of the rows are then joined in pairs. Some twenty times as fast as a plain Python loop.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_ROW = 64


def _byte_table() -> U32:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE = _byte_table()
_TABLE_INTS: list[int] = _TABLE.tolist()


def crc32c(data: bytes | memoryview) -> int:
    size = len(data)
    if size < _ROW:
        return _crc_short(bytes(data))
    rows = -(-size // _ROW)
    # Zeros in front change nothing while the register is zero; the true start value is brought in at the end.
    padded = np.zeros(rows * _ROW, np.uint8)
    padded[rows * _ROW - size :] = np.frombuffer(data, np.uint8)
    columns = np.ascontiguousarray(padded.reshape(rows, _ROW).T)
    state = np.zeros(rows, np.uint32)
    for column in columns:
        state = _TABLE[(state ^ column) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    start = _after_zeros(np.array([0xFFFFFFFF], np.uint32), size)[0]
    return int(_join(state) ^ start) ^ 0xFFFFFFFF


def _crc_short(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state = _TABLE_INTS[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    """As TFRecord stores it: rotated and offset, so that a checksum of a checksum is no trouble."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _join(state: U32) -> np.uint32:
    """Registers of consecutive rows to the register of the whole."""
    width = _ROW
    while len(state) > 1:
        if len(state) % 2:
            state = np.concatenate([np.zeros(1, np.uint32), state])
        state = _apply(_zeros_tables(width.bit_length() - 1), state[0::2]) ^ state[1::2]
        width *= 2
    return state[0] if len(state) else np.uint32(0)


def _after_zeros(state: U32, count: int) -> U32:
    """The register after `count` more bytes that are zero."""
    for power in range(count.bit_length()):
        if count >> power & 1:
            state = _apply(_zeros_tables(power), state)
    return state


@cache
def _zeros_tables(power: int) -> U32:
    """[4, 256]: what each byte of the register becomes after 2^power zero bytes."""
    register = np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    if power == 0:
        return (_TABLE[register & np.uint32(0xFF)] ^ (register >> np.uint32(8))).astype(np.uint32)
    half = _zeros_tables(power - 1)
    return _apply(half, _apply(half, register))


def _apply(tables: U32, state: U32) -> U32:
    byte = np.uint32(0xFF)
    return (
        tables[0][state & byte]
        ^ tables[1][state >> np.uint32(8) & byte]
        ^ tables[2][state >> np.uint32(16) & byte]
        ^ tables[3][state >> np.uint32(24)]
    )
