"""Scores and attention weights that reach the corners of the score adder."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.numerics import ufix_limit
from golden.parameters import TisgParameters

__all__ = ["legal_scores", "reserved_scores", "weights"]

_MANTISSA = {"fp16": 10, "fp32": 23}
_BIAS = {"fp16": 15, "fp32": 127}


def legal_scores(rng: np.random.Generator, p: NDArray[np.uint16], parameters: TisgParameters):
    """Draw non-negative scores, infinity included, half of them on a scale near that of ``p``.

    Returns
    -------
    ndarray of uint16 (``fp16``) or uint32, shape of ``p``
    """
    dtype = np.uint16 if parameters.score_width == 16 else np.uint32
    if parameters.score_format == "ufix":
        width = parameters.int_bits + parameters.frac_bits
        limit = ufix_limit(parameters.int_bits, parameters.frac_bits)
        codes = rng.integers(1 << width, size=p.shape) >> rng.integers(width, size=p.shape)
        near_full = limit - np.minimum(codes & 3, limit)
        codes = np.where(rng.random(p.shape) < 0.1, near_full, codes)
        return np.minimum(codes, limit).astype(dtype)
    mantissa = _MANTISSA[parameters.score_format]
    infinity = (1 << (parameters.score_width - 1)) - (1 << mantissa)
    exponent = ((p >> 10) & 31).astype(np.int64) - 15 + _BIAS[parameters.score_format]
    exponent += rng.integers(-mantissa - 3, mantissa + 4, size=p.shape)
    field = rng.integers(1 << mantissa, size=p.shape)
    sparse = field & rng.integers(1 << mantissa, size=p.shape) & -field
    field = np.where(rng.random(p.shape) < 0.5, field, sparse)
    near = (np.maximum(exponent, 0) << mantissa) + field
    anywhere = rng.integers(infinity + 1, size=p.shape)
    chosen = np.where(rng.random(p.shape) < 0.5, near, anywhere)
    return np.minimum(chosen, infinity).astype(dtype)


def reserved_scores(rng: np.random.Generator, shape: tuple, parameters: TisgParameters) -> NDArray:
    """Draw any bit patterns, as lanes hold that must pass unchanged."""
    dtype: Any = np.uint16 if parameters.score_width == 16 else np.uint32
    patterns = rng.integers(1 << parameters.score_width, size=shape, dtype=np.uint64)
    return np.where(rng.random(shape) < 0.2, np.iinfo(dtype).max, patterns).astype(dtype)


def weights(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """Draw fp16 patterns: attention weights, all numbers, zeros, infinities, NaN, negatives."""
    special = np.array(
        [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF]
        + [0x8001, 0x83FF, 0x8400, 0xBC00, 0xFBFF, 0xFC00, 0xFC01, 0xFE00, 0xFFFF],
        np.uint16,
    )
    attention = rng.beta(0.1, 10, size=shape).astype(np.float16).view(np.uint16)
    positive = rng.integers(0x7C01, size=shape, dtype=np.uint16)
    kind = rng.integers(8, size=shape)
    chosen = np.where(kind < 3, attention, np.where(kind < 7, positive, rng.choice(special, shape)))
    return chosen.astype(np.uint16)
