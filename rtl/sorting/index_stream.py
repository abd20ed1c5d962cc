"""Masks to streams of indices."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.sorting.one_hot import any_of, choose

__all__ = ["IndexStream"]

_BLOCK = 16


def _sum(a, b) -> Value:
    """Add two counts; bit k says that the count is above k, as far as the bits go."""
    return Cat(
        any_of([a[k], b[k], *(a[i] & b[k - 1 - i] for i in range(k))]) for k in range(len(a))
    )


def _before(m: Module, counts: list, name: str) -> list:
    """Sum of all counts before each, and of all, by a prefix network of logarithmic depth."""
    if len(counts) == 1:
        return [Const(0, len(counts[0])), counts[0]]
    half = 1 << ((len(counts) - 1).bit_length() - 1)
    low = _before(m, counts[:half], f"{name}_l")
    high = _before(m, counts[half:], f"{name}_h")
    sums = []
    for number, count in enumerate(high):
        total = Signal(len(count), name=f"{name}_{number}")
        m.d.comb += total.eq(_sum(low[-1], count))
        sums.append(total)
    return low[:-1] + sums


class IndexStream(wiring.Component):
    """Lists the bits that are set in a mask, lowest first, ``lanes`` per clock.

    Every mask gives at least one beat, ``count`` 0 if it is empty; ``end`` marks its last one. Only
    the last beat of a mask has fewer than ``lanes`` indices; those from ``count`` on are 0. The
    first beat appears in the clock after the mask was taken; the next mask is taken in the clock in
    which the last beat leaves.

    Parameters
    ----------
    width : int
        Bits of a mask, at least 2.
    lanes : int
        Indices of a beat, at least 1.
    context : Shape-like
        Of what accompanies each mask.

    Members
    -------
    i : stream of {``mask``, ``context``}
    o : stream of {``indices``, ``count``, ``end``, ``context``}
    """

    def __init__(self, *, width: int, lanes: int, context):
        self.width = width
        self.lanes = lanes
        self.context = context
        beat = {
            "indices": data.ArrayLayout(range(width), lanes),
            "count": range(lanes + 1),
            "end": 1,
            "context": context,
        }
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({"mask": width, "context": context}))),
            "o": Out(stream.Signature(data.StructLayout(beat))),
        })

    def elaborate(self, platform):
        m = Module()
        mask, busy = Signal(self.width, reset_less=True), Signal()
        context = Signal(self.context, reset_less=True)
        rest, found = self._lowest(m, mask)

        m.d.comb += [
            self.o.payload.context.eq(context),
            self.o.payload.count.eq(sum(found)),
            self.o.payload.end.eq(~rest.any()),
            self.o.valid.eq(busy),
            self.i.ready.eq(~busy | (self.o.ready & self.o.payload.end)),
        ]

        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [mask.eq(rest), busy.eq(~self.o.payload.end)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                mask.eq(self.i.payload.mask),
                context.eq(self.i.payload.context),
                busy.eq(1),
            ]

        return m

    def _lowest(self, m, mask):
        """Give the lowest set bits to the lanes; the other bits, and which lanes have one."""
        lanes = range(self.lanes)
        rest = Signal(self.width)
        blocks = [
            self._block(m, mask[start : start + _BLOCK], start)
            for start in range(0, self.width, _BLOCK)
        ]
        totals = _before(m, [total for total, _, _ in blocks], "blocks")
        indices = [[] for _ in lanes]
        for number, (_, counts, places) in enumerate(blocks):
            start = number * _BLOCK
            base = Signal(self.lanes, name=f"base_{number}")
            above = [Const(1), *totals[number]]
            m.d.comb += base.eq(Cat(above[lane] & ~above[lane + 1] for lane in lanes))
            for lane in lanes:
                shifted = [places[lane - offset] for offset in range(lane + 1)]
                indices[lane].append(choose(base[: lane + 1], shifted))
            # A bit stays if the lanes run out before it.
            for place, before in enumerate(counts):
                taken = any_of(base[lane] & ~before[self.lanes - 1 - lane] for lane in lanes)
                m.d.comb += rest[start + place].eq(mask[start + place] & ~taken)
        m.d.comb += [self.o.payload.indices[lane].eq(any_of(indices[lane])) for lane in lanes]
        return rest, totals[-1]

    def _block(self, m, bits, start):
        """Count the bits of a block, in all and before each, and index those its own lanes take."""
        ones = [Cat(bit, Const(0, self.lanes - 1)) for bit in bits]
        *counts, total = _before(m, ones, f"bits_{start}")
        places = []
        for lane in range(self.lanes):
            only = Signal(len(bits), name=f"only_{start}_{lane}")
            place = Signal(range(self.width), name=f"place_{start}_{lane}")
            for number, before in enumerate(counts):
                above = [Const(1), *before]
                m.d.comb += only[number].eq(bits[number] & above[lane] & ~above[lane + 1])
            m.d.comb += place.eq(
                choose(only, [Const(start + n, range(self.width)) for n in range(len(bits))])
            )
            places.append(place)
        return total, counts, places
