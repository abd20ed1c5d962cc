"""Sum of a fixed-point score and an fp16 addend, in two halves that a register may part."""

from amaranth import *
from amaranth.lib import data

__all__ = ["add", "align", "operands_layout"]

_BIAS = 15
#: Fraction bits of a significand shifted left by its exponent; subnormals have exponent 1.
_FRACTION_BITS = 25


def operands_layout(score_width: int, code_width: int) -> data.StructLayout:
    """Lay out score and addend as codes, between :func:`align` and :func:`add`.

    ``round_up``: ``code`` is one too small. ``overflow``: the addend is beyond all codes. Unless
    ``added``, ``code`` is 0.
    """
    return data.StructLayout({
        "score": score_width,
        "code": code_width,
        "round_up": 1,
        "overflow": 1,
        "added": 1,
    })


def align(m: Module, score, addend, added, *, int_bits: int, frac_bits: int) -> data.View:
    """Convert the addend, up to the increment of its rounding to nearest even.

    Parameters
    ----------
    m : Module
        Where the logic is built.
    score : Value
        Its lowest ``int_bits + frac_bits`` bits are the code, those above pass unchanged.
    addend : View of FP16
        No NaN; its sign is not looked at.
    added : Value
        Whether to add; if not, :func:`add` gives the score, bit by bit.
    int_bits : int
        Integer bits of the score's code.
    frac_bits : int
        Fraction bits of the score's code.

    Returns
    -------
    View of operands_layout
    """
    operands = Signal(operands_layout(len(score), int_bits + frac_bits))
    normal = Signal()
    scale = Signal(len(addend.exponent))
    shifted = Signal(_FRACTION_BITS + int_bits, name="significand")
    guard = _FRACTION_BITS - frac_bits - 1

    m.d.comb += [
        normal.eq(addend.exponent.any()),
        scale.eq(addend.exponent | ~normal),
        shifted.eq(Mux(added, Cat(addend.mantissa, normal), 0)),
    ]
    for place in range(len(scale)):
        step = 1 << place
        moved = Signal.like(shifted, name=f"shifted_{step}")
        # Ones that leave at the top belong to an overflow.
        m.d.comb += moved.eq(Mux(scale[place], Cat(C(0, step), shifted[:-step]), shifted))
        shifted = moved
    m.d.comb += [
        operands.score.eq(score),
        operands.code.eq(shifted[guard + 1:]),
        operands.round_up.eq(shifted[guard] & (shifted[guard + 1] | shifted[:guard].any())),
        operands.overflow.eq(added & (addend.exponent >= _BIAS + int_bits)),
        operands.added.eq(added),
    ]
    return operands


def add(m: Module, operands) -> Signal:
    """Add and round, no higher than the code below all ones.

    Parameters
    ----------
    m : Module
        Where the logic is built.
    operands : View of operands_layout
        From :func:`align`.

    Returns
    -------
    Signal
    """
    total = Signal(len(operands.score))
    width = len(operands.code)
    code = Signal(width + 1)
    saturate = Signal()

    m.d.comb += [
        code.eq(operands.score[:width] + operands.code + operands.round_up),
        # A score that nothing is added to may be all ones: a reserved code, which must pass.
        saturate.eq(operands.overflow | code[-1] | (operands.added & code[:-1].all())),
        total.eq(Cat(Mux(saturate, (1 << width) - 2, code[:-1]), operands.score[width:])),
    ]
    return total
