"""The values of a version, written from the description of checkpoint.Mutate, with numpy.

Tensors are seen as little-endian words of eight bytes. A word's hash says which of its mantissa bits (low bits
of integers) flip; bytes of 8-bit floats that a flip could make a NaN stay.
"""

import numpy as np

U = np.uint64
EVERY = 0x0101010101010101

# dtype: bits of a word that may flip
LANES = {
    "BOOL": 0x01 * EVERY, "U8": 0xFF * EVERY, "I8": 0x7F * EVERY,
    "I16": 0x00FF00FF00FF00FF, "U16": 0x00FF00FF00FF00FF, "I32": 0x000000FF000000FF, "U32": 0x000000FF000000FF,
    "I64": 0xFF, "U64": 0xFF, "F16": 0x03FF03FF03FF03FF, "BF16": 0x007F007F007F007F,
    "F32": 0x007FFFFF007FFFFF, "C64": 0x007FFFFF007FFFFF, "F64": 0x000FFFFFFFFFFFFF,
    "F8_E5M2": 0x03 * EVERY, "F8_E4M3": 0x07 * EVERY, "F8_E4M3FNUZ": 0x07 * EVERY, "F8_E5M2FNUZ": 0x03 * EVERY, "F8_E8M0": 0x07 * EVERY,
}
# dtype: bytes b with b & mask == value stay
KEPT = {"F8_E4M3": (0x78, 0x78), "F8_E4M3FNUZ": (0xF8, 0x80), "F8_E5M2FNUZ": (0xFC, 0x80), "F8_E8M0": (0xF8, 0xF8)}


def mix(counter: np.ndarray) -> np.ndarray:
    """splitmix64 of a counter, modulo 2^64."""
    z = counter * U(0x9E3779B97F4A7C15) + U(0x9E3779B97F4A7C15)
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


def stream_key(name: str, seed: int, version: int) -> np.ndarray:
    """FNV-1a of the name, mixed with seed and version."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    one = lambda n: np.array([n], dtype=U)
    return mix(one(h) ^ mix(one(seed))) ^ mix(one(version ^ 0x64727964_6F636B00))


def mutated(content: np.ndarray, dtype: str, name: str, seed: int, version: int) -> np.ndarray:
    """The bytes of a whole tensor in a version, from its bytes in the checkpoint."""
    if version == 0 or content.size == 0:
        return content.copy()
    padded = np.zeros(-(-content.size // 8) * 8, dtype=np.uint8)
    padded[: content.size] = content
    change = mix(stream_key(name, seed, version) + np.arange(padded.size // 8, dtype=U)) & U(LANES[dtype])
    flips = change.astype("<u8").view(np.uint8)
    if dtype in KEPT:
        mask, value = KEPT[dtype]
        flips[padded & mask == value] = 0
    return (padded ^ flips)[: content.size]
