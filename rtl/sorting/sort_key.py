"""Sort keys of floating-point values."""

from amaranth import *

__all__ = ["EMPTY", "NAN_KEY", "is_nan", "sort_key"]

#: Key of padding: below everything, never selected.
EMPTY = 0
#: Key of every NaN: below every number.
NAN_KEY = 1

_MANTISSA = {16: 10, 32: 23}


def is_nan(bits: Value) -> Value:
    """Whether fp16 or fp32 bits are a NaN of either sign."""
    mantissa = _MANTISSA[len(bits)]
    return bits[mantissa:-1].all() & bits[:mantissa].any()


def sort_key(bits: Value, magnitude: Value) -> Value:
    """Unsigned key in the order of the values, or of their magnitudes.

    Parameters
    ----------
    bits : Value
        fp16 or fp32 bits.
    magnitude : Value
        The sign counts as clear.
    """
    negative = bits[-1] & ~magnitude
    ordered = Cat(bits[:-1] ^ negative.replicate(len(bits) - 1), ~negative)
    return Mux(is_nan(bits), NAN_KEY, ordered)
