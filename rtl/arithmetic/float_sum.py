"""Sum of two non-negative floating-point numbers, in two halves that a register may part."""

from amaranth import *
from amaranth.lib import data

__all__ = ["FP16", "FP32", "FloatFormat", "add", "align", "operands_layout"]


class FloatFormat(data.StructLayout):
    """Layout of an IEEE 754 binary format.

    Parameters
    ----------
    exponent_width, mantissa_width : int
        Bits of the fields; the mantissa without its hidden bit.
    """

    def __init__(self, exponent_width: int, mantissa_width: int):
        self.exponent_width = exponent_width
        self.mantissa_width = mantissa_width
        super().__init__({"mantissa": mantissa_width, "exponent": exponent_width, "sign": 1})


FP16 = FloatFormat(5, 10)
FP32 = FloatFormat(8, 23)


def operands_layout(layout: FloatFormat) -> data.StructLayout:
    """Lay out two operands on one scale, between :func:`align` and :func:`add`.

    ``large`` is the mantissa of the operand with the greater exponent, ``small`` the other, moved
    to its scale: guard bit, mantissa, hidden bit. ``sticky``: a one was lost below the guard bit.
    ``exponent`` is 0 unless ``normal``. ``sign`` is the score's. Unless ``added``, ``small`` is 0.
    """
    return data.StructLayout({
        "large": layout.mantissa_width,
        "small": layout.mantissa_width + 2,
        "sticky": 1,
        "exponent": layout.exponent_width,
        "normal": 1,
        "sign": 1,
        "added": 1,
    })


def _carry(m: Module, generate, propagate, carry: Value, name: str) -> list[Value]:
    """Make the carries into places 1, 2, ... and out of the last; ``carry`` is that into place 1.

    Written bit by bit, as synthesis otherwise makes a prefix tree that is larger and no faster.
    """
    carries = [carry]
    for place in range(1, len(generate)):
        carries.append(Signal(name=f"{name}_{place + 1}"))
        m.d.comb += carries[-1].eq(generate[place] | (propagate[place] & carries[-2]))
    return carries


def _shift_right(m: Module, value: Signal, distance: Signal) -> tuple[Signal, Value]:
    """Shift right; also tell whether a one was lost, which is undefined if nothing is left."""
    places = (len(value) - 1).bit_length()
    within = ~distance[places:].any()
    lost = []
    # Of all orders of the steps this one came out smallest in synthesis.
    order = (1, 0, *reversed(range(2, places)))
    for place in order:
        step = 1 << place
        shifted = Signal.like(value, name=f"shifted_{step}")
        lost.append(Signal(name=f"lost_{step}"))
        if place != order[-1]:
            m.d.comb += shifted.eq(Mux(distance[place], value[step:], value))
        else:
            move = (distance[place] & within).replicate(len(value))
            keep = (~distance[place] & within).replicate(len(value))
            m.d.comb += shifted.eq((value[step:] & move) | (value & keep))
        m.d.comb += lost[-1].eq(distance[place] & value[:step].any())
        value = shifted
    return value, Cat(*lost).any()


def align(m: Module, score, addend, added) -> data.View:
    """Put score and addend on one scale, the first half of the sum.

    Parameters
    ----------
    m : Module
        Where the logic is built.
    score : View of FloatFormat
        Non-negative and no NaN, if it is added to.
    addend : View of FloatFormat
        In the score's format and no NaN; its sign is not looked at.
    added : Value
        Whether to add; if not, :func:`add` gives the score, bit by bit.

    Returns
    -------
    View of operands_layout
    """
    layout: FloatFormat = score.shape()
    operands = Signal(operands_layout(layout))
    score_normal = Signal()
    addend_normal = Signal()
    score_scale = Signal(layout.exponent_width)
    addend_scale = Signal(layout.exponent_width)
    difference = Signal(layout.exponent_width)
    score_leads = Signal()
    addend_leads = Signal()
    score_moved = Signal(layout.mantissa_width + 2)
    addend_moved = Signal(layout.mantissa_width + 2)
    follower = Signal(layout.mantissa_width + 2)
    distance = Signal(layout.exponent_width)

    generate = score_scale & ~addend_scale
    carries = _carry(m, generate, score_scale | ~addend_scale, generate[0], "difference")
    m.d.comb += [
        score_normal.eq(score.exponent.any()),
        addend_normal.eq(addend.exponent.any()),
        # Subnormals have the scale of the smallest normal numbers.
        score_scale.eq(score.exponent | ~score_normal),
        addend_scale.eq(addend.exponent | ~addend_normal),
        # One's complement: the carry says that the score's scale is the greater one, and the rest
        # is one too small then. `addend_moved` makes up for it by a fixed shift, so no second
        # carry chain is needed. Without carry the inverse is exact.
        difference.eq(score_scale ^ ~addend_scale ^ Cat(0, *carries[:-1])),
        score_leads.eq(carries[-1]),
        addend_leads.eq(~score_leads & added),
        distance.eq(difference ^ (~score_leads).replicate(layout.exponent_width)),
        # On equal scales the addend leads; a hidden bit that only the score has then counts as its.
        score_moved.eq(Cat(0, score.mantissa, score_normal & addend_normal)),
        addend_moved.eq(Cat(addend.mantissa, addend_normal)),
        follower.eq(Mux(addend_leads, score_moved, Mux(score_leads & added, addend_moved, 0))),
    ]
    shifted, sticky = _shift_right(m, follower, distance)
    m.d.comb += [
        operands.large.eq(Mux(addend_leads, addend.mantissa, score.mantissa)),
        operands.small.eq(shifted),
        operands.sticky.eq(sticky),
        operands.normal.eq(score_normal | (addend_normal & added)),
        operands.exponent.eq(Mux(addend_leads, addend_scale, score_scale)),
        operands.sign.eq(score.sign),
        operands.added.eq(added),
    ]
    with m.If(~operands.normal):
        m.d.comb += operands.exponent.eq(0)
    return operands


def add(m: Module, operands, layout: FloatFormat) -> data.View:
    """Add, and round to nearest even, the second half of the sum.

    Parameters
    ----------
    m : Module
        Where the logic is built.
    operands : View of operands_layout
        From :func:`align`.
    layout : FloatFormat
        Of the score that :func:`align` got.

    Returns
    -------
    View of FloatFormat
    """
    total = Signal(layout)
    large = operands.large
    small = operands.small[1:-1]
    guard = operands.small[0]
    hidden = operands.small[-1]
    generate = Signal(layout.mantissa_width)
    propagate = Signal(layout.mantissa_width)
    reaches_two = Signal()
    halve = Signal()
    rounding = Signal()
    same = Signal(layout.mantissa_width)
    half = Signal(layout.mantissa_width)
    last = Signal()
    infinite = Signal()
    take_same = Signal()
    take_half = Signal()
    successor = Signal(layout.exponent_width)

    m.d.comb += [
        generate.eq(large & small),
        propagate.eq(large | small),
    ]
    unrounded = _carry(m, generate, propagate, generate[0], "unrounded")
    # A sum of two or more moves down one place. Rounding is half up, by the carry into place 1,
    # which is the last place then and has place 0 as its guard bit. Ties are made even afterwards.
    # A sum that reaches two by rounding only is all zeros and may stay.
    m.d.comb += [
        reaches_two.eq(hidden | unrounded[-1]),
        halve.eq(reaches_two & operands.normal),
        rounding.eq(generate[0] | (propagate[0] & (guard | halve))),
    ]
    carries = _carry(m, generate, propagate, rounding, "carry")
    places = large ^ small ^ Cat(guard, *carries[:-1])
    tie_same = guard & ~operands.sticky
    tie_half = places[0] & ~guard & ~operands.sticky
    m.d.comb += [
        same.eq(Cat(places[0] & ~tie_same, places[1:])),
        half.eq(Cat(places[1] & ~tie_half, places[2:], hidden & carries[-1])),
        last.eq(operands.exponent.all()),
        infinite.eq((last & operands.added) | (operands.exponent[1:].all() & reaches_two)),
        take_same.eq(~halve & ~infinite),
        take_half.eq(halve & ~infinite),

        total.mantissa.eq(
            (same & take_same.replicate(layout.mantissa_width))
            | (half & take_half.replicate(layout.mantissa_width))
        ),
        # The carry also makes a normal number of two subnormals.
        successor.eq(operands.exponent + 1),
        total.exponent.eq(Mux((hidden | carries[-1]) & ~last, successor, operands.exponent)),
        total.sign.eq(operands.sign),
    ]
    return total
