"""Sort keys, score formats and the adders of the importance score."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EMPTY",
    "FP16_NAN",
    "NAN_KEY",
    "accumulate",
    "blocked",
    "is_bad_addend",
    "quantise_ufix",
    "rank",
    "score_dtype",
    "score_keys",
    "sort_keys",
    "ufix_limit",
]

#: Sort key of an empty place or padding: below everything, never selected.
EMPTY = 0x0000
#: Sort key of any NaN: below every number.
NAN_KEY = 0x0001
#: The one fp16 NaN that results carry.
FP16_NAN = 0x7E00

_FLOATS = {16: (np.uint16, 5, 10), 32: (np.uint32, 8, 23)}


def blocked(key_width: int) -> int:
    """Sort key above everything: a heap place beyond the capacity."""
    return (1 << key_width) - 1


def sort_keys(bits: NDArray[np.unsignedinteger], *, magnitude: bool = False) -> NDArray[Any]:
    """Sort keys of fp16 (``uint16``) or fp32 (``uint32``) bit patterns.

    Parameters
    ----------
    bits : ndarray of uint16 or uint32, any shape
        Bit patterns of the values.
    magnitude : bool
        Rank by absolute value (Q): the sign bit is cleared first.

    Returns
    -------
    ndarray, shape and dtype of ``bits``
        Unsigned keys in the order of the values, -0 below +0, every NaN :data:`NAN_KEY`.

    Raises
    ------
    TypeError
        If ``bits`` is not an array of uint16 or uint32.
    """
    if bits.dtype not in (np.uint16, np.uint32):
        raise TypeError(f"Bits must be uint16 or uint32, not {bits.dtype}")
    width = bits.dtype.itemsize * 8
    dtype, _, mantissa = _FLOATS[width]
    sign = dtype(1 << (width - 1))
    infinity = dtype((int(sign) - 1) >> mantissa << mantissa)
    absolute = bits & ~sign
    signed = absolute if magnitude else bits
    keys = np.where(signed & sign, ~signed, signed | sign)
    return np.where(absolute > infinity, dtype(NAN_KEY), keys).astype(dtype)


def rank(keys: NDArray[np.unsignedinteger], indices: NDArray[np.integer]) -> NDArray[np.intp]:
    """Positions in the strict descending order: key first, of equal keys the lower index.

    Parameters
    ----------
    keys : ndarray of unsigned integers, shape (..., count)
        Sort keys.
    indices : ndarray of integers, shape (..., count)
        Index that belongs to each.

    Returns
    -------
    ndarray of intp, shape (..., count)
        ``order`` such that ``keys[order]`` descends.
    """
    return np.lexsort((indices, np.invert(keys)), axis=-1)


def ufix_limit(int_bits: int, frac_bits: int) -> int:
    """Largest code of a ``ufix`` score: one below all-ones, which is reserved."""
    return (1 << (int_bits + frac_bits)) - 2


def score_dtype(score_format: str) -> type[np.unsignedinteger]:
    """Type of the bit patterns of a score: uint16 (``fp16``) or uint32 (``fp32``, ``ufix``)."""
    return np.uint16 if score_format == "fp16" else np.uint32


def score_keys(score: NDArray[np.unsignedinteger], score_format: str = "fp16") -> NDArray[Any]:
    """Sort keys of scores: of floats as :func:`sort_keys`, of a ``ufix`` code its top bit set.

    Parameters
    ----------
    score : ndarray of uint16 (``fp16``) or uint32 (``fp32``, ``ufix``), any shape
        Bit patterns.
    score_format : {"fp16", "fp32", "ufix"}
        Format of ``score``.

    Returns
    -------
    ndarray, shape and dtype of ``score``
    """
    return score | np.uint32(1 << 31) if score_format == "ufix" else sort_keys(score)


def is_bad_addend(p: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Whether an fp16 attention weight is NaN or negative non-zero; such a P adds nothing."""
    magnitude = p & np.uint16(0x7FFF)
    return (magnitude > 0x7C00) | ((p > 0x8000) & (magnitude <= 0x7C00))


def quantise_ufix(p: NDArray[np.uint16], *, int_bits: int = 10, frac_bits: int = 21) -> NDArray:
    """Codes (``uint32``) of non-negative fp16 values, rounded to nearest even, saturating."""
    scaled = p.view(np.float16).astype(np.float64) * float(1 << frac_bits)
    limit = ufix_limit(int_bits, frac_bits)
    return np.minimum(np.rint(scaled), limit).astype(np.uint32)


def accumulate(
    score: NDArray[np.unsignedinteger],
    p: NDArray[np.uint16],
    score_format: str = "fp16",
    *,
    int_bits: int = 10,
    frac_bits: int = 21,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One addition of the score generator: ``IS <- round(IS + P)``.

    Parameters
    ----------
    score : ndarray of uint16 (``fp16``) or uint32 (``fp32``, ``ufix``)
        Bit patterns of non-negative scores.
    p : ndarray of uint16, shape of ``score``
        fp16 bit patterns of attention weights; NaN and negative non-zero ones add nothing,
        -0 counts as +0.
    score_format : {"fp16", "fp32", "ufix"}
        Format of ``score``.
    int_bits, frac_bits : int
        Of ``ufix``.

    Returns
    -------
    sum : ndarray, shape and dtype of ``score``
    bad : ndarray of bool
        Where P was NaN or negative non-zero.
    """
    bad = is_bad_addend(p)
    addend = np.where(bad, np.uint16(0), p & np.uint16(0x7FFF)).astype(np.uint16)
    if score_format == "ufix":
        code = quantise_ufix(addend, int_bits=int_bits, frac_bits=frac_bits).astype(np.uint64)
        limit = ufix_limit(int_bits, frac_bits)
        return np.minimum(score.astype(np.uint64) + code, limit).astype(np.uint32), bad
    dtype = {"fp16": np.float16, "fp32": np.float32}[score_format]
    with np.errstate(over="ignore"):
        total = score.view(dtype) + addend.view(np.float16).astype(dtype)
    return total.view(score.dtype), bad
