"""Bit-exact attention: dot products, softmax and weighted sums in the hardware's order.

Operands are fp16, everything between is fp32, each operation rounded to nearest even. Leading
dimensions (batch, heads) broadcast. Every NaN result is the one quiet NaN of its format.
"""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXP_TABLE", "LANES", "dot", "exp", "ordered_sum", "scores", "softmax", "weighted_sum"]

Half = NDArray[np.float16]
Single = NDArray[np.float32]

#: Products that one tile adds in a tree.
LANES = 16

_PARTIALS = 64
_STEPS = 64

#: ``2**(j/64)``, the table of :func:`exp`.
EXP_TABLE = np.exp2(np.arange(_STEPS) / _STEPS).astype(np.float32)
EXP_TABLE.flags.writeable = False

_STEPS_PER_UNIT = np.float32(_STEPS / np.log(2))
# ln(2)/64 in two parts; n times the first is exact for every n of exp (13 bits by 11).
_STEP_HIGH = np.float32(np.floor(np.log(2) * 2**11) / 2**11 / _STEPS)
_STEP_LOW = np.float32(np.log(2) / _STEPS - float(_STEP_HIGH))
_LOWEST_EXPONENT = -126


def _quiet(values: Single) -> Single:
    return np.where(np.isnan(values), np.float32(np.nan), values)


def _tree(values: Single, axis: int) -> Single:
    """Sum over an axis whose length is a power of two, neighbours first."""
    values = np.moveaxis(values, axis, 0)
    while len(values) > 1:
        values = values[0::2] + values[1::2]
    return values[0]


def _accumulate(products: Single) -> Single:
    """Sum over the first axis: tiles of 16 in a tree, added up in increasing order."""
    total = np.zeros(products.shape[1:], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(products), LANES):
            tile = products[start : start + LANES]
            if len(tile) < LANES:
                tile = np.pad(tile, ((0, LANES - len(tile)), *((0, 0),) * (tile.ndim - 1)))
            total = total + _tree(tile, 0)
    return _quiet(total)


def dot(a: Half, b: Half) -> Single:
    """Dot products over the last axis.

    A tile is 16 products, exact in fp32, the last one filled with +0; a tile is summed by a tree,
    neighbours first, and added to the accumulator, which starts at +0, in increasing order.

    Parameters
    ----------
    a, b : ndarray of float16, shapes (..., length)
        Broadcast against each other.

    Returns
    -------
    ndarray of float32, shape (...)
    """
    front_a, front_b = (np.moveaxis(x, -1, 0).astype(np.float32) for x in (a, b))
    ranks = max(front_a.ndim, front_b.ndim)
    front_a, front_b = (
        x.reshape(len(x), *(1,) * (ranks - x.ndim), *x.shape[1:]) for x in (front_a, front_b)
    )
    with np.errstate(invalid="ignore"):
        return _accumulate(np.multiply(front_a, front_b, order="C"))


def scores(q: Half, k: Half, dims: NDArray[np.integer] | None = None) -> Single:
    """Accumulated dot products of queries and keys, not yet scaled.

    Parameters
    ----------
    q : ndarray of float16, shape (..., head_dim)
        One query per head.
    k : ndarray of float16, shape (..., tokens, head_dim)
        Keys.
    dims : ndarray of integers, shape (..., selected), optional
        Selected dimensions of each query in increasing order; tiles are filled with them alone.

    Returns
    -------
    ndarray of float32, shape (..., tokens)
    """
    if dims is not None:
        leading = np.broadcast_shapes(q.shape[:-1], k.shape[:-2], dims.shape[:-1])
        dims = np.broadcast_to(dims, (*leading, dims.shape[-1]))
        q = np.take_along_axis(np.broadcast_to(q, (*leading, q.shape[-1])), dims, -1)
        k = np.take_along_axis(
            np.broadcast_to(k, (*leading, *k.shape[-2:])), dims[..., None, :], -1
        )
    return dot(q[..., np.newaxis, :], k)


def exp(x: Single) -> Single:
    """Exponential of numbers up to 0, in fp32 operations that hardware repeats bit by bit.

    With ``n = rint(x * 64/ln2)``, ``r = (x - n * high) - n * low`` (``high + low = ln2/64``),
    ``p = r + 0.5 * (r * r)`` and ``t = 2**((n mod 64)/64)`` from :data:`EXP_TABLE`, the result is
    ``(t + t * p) * 2**floor(n/64)``. Below ``2**-126`` it is +0, so there are no subnormals;
    ``exp(0)`` is 1.

    The relative error is at most ``2.5 * 2**-24``.

    Parameters
    ----------
    x : ndarray of float32, any shape
        Not NaN, not above 0; -inf is allowed.

    Returns
    -------
    ndarray of float32, shape of ``x``
    """
    finite = np.maximum(x, np.float32(-100))  # far below what is +0
    n = np.rint(finite * _STEPS_PER_UNIT)
    r = (finite - n * _STEP_HIGH) - n * _STEP_LOW
    p = r + np.float32(0.5) * (r * r)
    step = n.astype(np.int32)
    t = EXP_TABLE[step % _STEPS]
    exponent = step // _STEPS
    scaled = np.ldexp(t + t * p, np.maximum(exponent, _LOWEST_EXPONENT))
    return np.where(exponent < _LOWEST_EXPONENT, np.float32(0), scaled)


def ordered_sum(terms: Single) -> Single:
    """Sum over the last axis as :func:`softmax` forms it.

    Term i is added to partial sum ``i mod 64`` in increasing order, the partial sums by a tree,
    neighbours first.

    Parameters
    ----------
    terms : ndarray of float32, shape (..., length)
        Not negative.

    Returns
    -------
    ndarray of float32, shape (...)
    """
    spare = -terms.shape[-1] % _PARTIALS
    padded = np.pad(terms, ((0, 0),) * (terms.ndim - 1) + ((0, spare),))
    partials = np.zeros((*terms.shape[:-1], _PARTIALS), np.float32)
    for first in range(0, padded.shape[-1], _PARTIALS):
        partials = partials + padded[..., first : first + _PARTIALS]
    return _tree(partials, -1)


def softmax(
    accumulated: Single, head_dim: int, mask: NDArray[np.bool_] | None = None
) -> tuple[Half, NDArray[np.bool_]]:
    """Attention weights of accumulated dot products.

    ``s = accumulated * c`` with ``c = fp32(1/sqrt(head_dim))``; NaN counts as -inf, +inf as the
    largest finite number. ``e = exp(s - max(s))``, ``r = fp32(1/ordered_sum(e))`` and
    ``P = fp16(e * r)``. If all of a row are -inf, all its weights are +0.

    Parameters
    ----------
    accumulated : ndarray of float32, shape (..., tokens)
        Result of :func:`scores`; ``tokens`` may be 0.
    head_dim : int
        Dimensions of the head, selected or not.
    mask : ndarray of bool, shape broadcastable to ``accumulated``, optional
        True where a token takes part; others count as -inf.

    Returns
    -------
    p : ndarray of float16, shape (..., tokens)
    bad : ndarray of bool, shape (...)
        Whether a score that takes part was NaN or infinite.
    """
    c = np.float32(1 / np.sqrt(head_dim))
    with np.errstate(over="ignore", invalid="ignore"):
        s = accumulated * c
    taking_part = np.broadcast_to(True if mask is None else mask, s.shape)
    bad = np.asarray((~np.isfinite(s) & taking_part).any(axis=-1))
    s = np.where(np.isnan(s) | ~taking_part, np.float32(-np.inf), s)
    s = np.minimum(s, np.finfo(np.float32).max)
    top = s.max(axis=-1, keepdims=True, initial=np.float32(-np.inf))
    empty = np.isneginf(top)
    with np.errstate(over="ignore"):
        e = exp(s - np.where(empty, np.float32(0), top))
    total = ordered_sum(e)[..., np.newaxis]
    reciprocal = np.float32(1) / np.where(empty, np.float32(1), total)
    return (e * reciprocal).astype(np.float16), bad


def weighted_sum(p: Half, v: Half, rows: NDArray[np.bool_] | None = None) -> Single:
    """Add up value rows, each weighted with its P.

    Tiles take the next 16 rows in increasing order; sums as in :func:`dot`. Without ``rows``, a row
    whose P is zero is skipped: it fills no place of a tile, whatever it holds. With ``rows``, just
    those fill places, and one whose P is zero gives +0 products, whatever it holds.

    Parameters
    ----------
    p : ndarray of float16, shape (..., tokens)
        Weights.
    v : ndarray of float16, shape (..., tokens, head_dim)
        Rows; leading dimensions broadcast.
    rows : ndarray of bool, shape broadcastable to ``p``, optional
        True where a row is fetched.

    Returns
    -------
    ndarray of float32, shape (..., head_dim)
    """
    leading = np.broadcast_shapes(p.shape[:-1], v.shape[:-2])
    tokens, head_dim = v.shape[-2:]
    p = np.broadcast_to(p, (*leading, tokens))
    fetched = np.broadcast_to(p != 0 if rows is None else rows, p.shape)
    longest = int(fetched.sum(axis=-1).max(initial=0))
    order = np.argsort(~fetched, axis=-1, kind="stable")[..., :longest]
    used = fetched & (p != 0)
    p, used = (np.take_along_axis(x, order, -1)[..., np.newaxis] for x in (p, used))
    matrices = np.arange(math.prod(v.shape[:-2])).reshape(v.shape[:-2])
    places = np.broadcast_to(matrices, leading)[..., np.newaxis] * tokens + order
    with np.errstate(invalid="ignore"):
        products = p.astype(np.float32) * v.reshape(-1, head_dim)[places].astype(np.float32)
    products = np.where(used, products, np.float32(0))
    return _accumulate(np.ascontiguousarray(np.moveaxis(products, -2, 0)))
