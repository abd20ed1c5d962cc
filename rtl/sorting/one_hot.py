"""Priority and selection by one-hot vectors."""

import functools
import operator

from amaranth import *

__all__ = ["any_of", "choose", "lowest"]


def lowest(requests: Value) -> Value:
    """Lowest set bit alone."""
    return Cat(
        requests[place] & ~requests[:place].any() if place else requests[0]
        for place in range(len(requests))
    )


def any_of(values) -> Value:
    """Bitwise or of values of equal width."""
    return functools.reduce(operator.or_, [Value.cast(value) for value in values])


def choose(one_hot: Value, values) -> Value:
    """Value at the set bit; zero if none is set."""
    # Not `replicate`, which emits the expression of each bit once per bit of the value.
    return any_of(Mux(one_hot[place], value, 0) for place, value in enumerate(values))
