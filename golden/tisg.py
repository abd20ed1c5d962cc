"""Golden model of :class:`rtl.arithmetic.tisg.Tisg`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.numerics import accumulate
from golden.parameters import TisgParameters

__all__ = ["tisg"]


def tisg(
    scores: NDArray[np.unsignedinteger],
    p: NDArray[np.uint16],
    enable: NDArray[np.bool_],
    parameters: TisgParameters,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Update the scores by one beat, and tell the lanes with a bad attention weight.

    Parameters
    ----------
    scores : ndarray of uint16 (``fp16``) or uint32 (``fp32``, ``ufix``), shape (..., lanes)
        Bit patterns; non-negative and no NaN where enabled.
    p : ndarray of uint16, shape of ``scores``
        fp16 bit patterns of attention weights.
    enable : ndarray of bool, shape of ``scores``
        Lanes to add in; the others keep their score.
    parameters : TisgParameters
        ``score_format``, ``int_bits`` and ``frac_bits`` are used.

    Returns
    -------
    scores : ndarray, shape and dtype of ``scores``
    bad : ndarray of bool
        Where the weight of an enabled lane is NaN or negative non-zero.
    """
    total, bad = accumulate(
        scores,
        p,
        parameters.score_format,
        int_bits=parameters.int_bits,
        frac_bits=parameters.frac_bits,
    )
    # A bad weight leaves the score as it is, and no sum is looked at where nothing was added.
    added = enable & ~bad & (p < 0x8000)
    return np.where(added, total, scores), bad & enable
