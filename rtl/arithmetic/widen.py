"""Exact conversion of a non-negative fp16 number to fp32."""

from amaranth import *
from amaranth.lib import data

from rtl.arithmetic.float_sum import FP16, FP32

__all__ = ["widen"]


def widen(m: Module, number) -> data.View:
    """Convert to fp32; the sign is dropped, a NaN stays some NaN.

    Parameters
    ----------
    m : Module
        Where the logic is built.
    number : View of FP16
        What to convert.

    Returns
    -------
    View of FP32
    """
    normalised = number.mantissa
    leading_zeros = []
    for step in (8, 4, 2, 1):
        shifted = Signal(FP16.mantissa_width, name=f"normalised_{step}")
        empty = Signal(name=f"empty_{step}")
        m.d.comb += [
            empty.eq(~normalised[-step:].any()),
            shifted.eq(Mux(empty, normalised << step, normalised)),
        ]
        leading_zeros.insert(0, empty)
        normalised = shifted

    # The biases differ by 112 = 0b1110000, which no adder is needed for.
    top = number.exponent[-1]
    leading_zero_count = Cat(*leading_zeros)
    exponent = Signal(FP32.exponent_width)
    mantissa = Signal(FP16.mantissa_width)
    m.d.comb += [
        exponent.eq(Cat(number.exponent[:-1], (~top).replicate(3), top)),
        mantissa.eq(number.mantissa),
    ]
    with m.If(number.exponent.all()):
        m.d.comb += exponent.eq(-1)
    with m.Elif(~number.exponent.any()):
        # The leading one, now in the highest place, becomes the hidden bit.
        m.d.comb += [
            exponent.eq(Cat((-leading_zero_count)[:4], ~leading_zero_count.any(), C(0b11, 2))),
            mantissa.eq(normalised << 1),
        ]
        with m.If(~number.mantissa.any()):
            m.d.comb += exponent.eq(0)

    spare = FP32.mantissa_width - FP16.mantissa_width
    return FP32(Cat(C(0, spare), mantissa, exponent, C(0, 1)))
