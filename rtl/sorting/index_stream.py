"""Masks to streams of indices."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from rtl.sorting.one_hot import any_of, choose

__all__ = ["IndexStream"]

_BLOCK = 16


def _sum(a: list, b: list) -> list:
    """Add counts, many at once: element k of a list says whose count is above k."""
    return [
        any_of([a[k], b[k], *(a[i] & b[k - 1 - i] for i in range(k))]) for k in range(len(a))
    ]


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
        upto = self._counts(m, mask)
        before = [Cat(Const(0, 1), count[:-1]) & self._not_first() for count in upto]
        above = [Const(-1, self.width), *before]
        only = [Signal(self.width, name=f"only_{lane}") for lane in lanes]
        m.d.comb += [only[lane].eq(mask & above[lane] & ~above[lane + 1]) for lane in lanes]

        rest = Signal(self.width)
        indices = [[] for _ in lanes]
        starts = range(0, self.width, _BLOCK)
        ends = [min(start + _BLOCK, self.width) for start in starts]
        *totals, total = self._before(m, [[c[end - 1] for c in upto] for end in ends], "blocks")
        for start, end, known in zip(starts, ends, totals, strict=True):
            base = Signal(self.lanes, name=f"base_{start}")
            reached = [Const(1, 1), *known]
            m.d.comb += base.eq(Cat(reached[lane] & ~reached[lane + 1] for lane in lanes))
            places = [self._place(only[lane][start:end], start) for lane in lanes]
            for lane in lanes:
                shifted = [places[lane - offset] for offset in range(lane + 1)]
                indices[lane].append(choose(base[: lane + 1], shifted))
            # A bit stays if the lanes run out before it.
            taken = [~before[self.lanes - 1 - lane][start:end] for lane in lanes]
            m.d.comb += rest[start:end].eq(mask[start:end] & ~choose(base, taken))
        m.d.comb += [self.o.payload.indices[lane].eq(any_of(indices[lane])) for lane in lanes]
        return rest, total

    def _before(self, m, counts, name):
        """Add up all counts before each, and all of them."""
        if len(counts) == 1:
            return [[Const(0, 1)] * self.lanes, counts[0]]
        half = 1 << ((len(counts) - 1).bit_length() - 1)
        *low, base = self._before(m, counts[:half], f"{name}_l")
        sums = []
        for number, count in enumerate(self._before(m, counts[half:], f"{name}_h")):
            total = Signal(self.lanes, name=f"{name}_{number}")
            m.d.comb += total.eq(Cat(_sum(base, count)))
            sums.append(list(total))
        return [*low, *sums]

    def _not_first(self):
        return Const(sum(1 << n for n in range(self.width) if n % _BLOCK), self.width)

    def _counts(self, m, mask):
        """Count the bits up to each, from the start of its block, by a logarithmic network."""
        counts = [mask, *([Const(0, self.width)] * (self.lanes - 1))]
        distance = 1
        while distance < min(_BLOCK, self.width):
            # Every second run of `distance` places adds the last count of the run before it.
            lower = [
                Cat(
                    count[place // distance * distance - 1] if place & distance else Const(0, 1)
                    for place in range(self.width)
                )
                for count in counts
            ]
            sums = _sum(counts, lower)
            counts = [
                Signal(self.width, name=f"counts_{distance}_{k}") for k in range(self.lanes)
            ]
            m.d.comb += [count.eq(value) for count, value in zip(counts, sums, strict=True)]
            distance *= 2
        return counts

    def _place(self, only, start):
        """Index of the one bit that is set, 0 if none is."""
        offsets = [
            (only & sum(1 << n for n in range(len(only)) if n >> bit & 1)).any()
            for bit in range(exact_log2(_BLOCK))
        ]
        index = Cat(Cat(offsets), Const(start // _BLOCK, self.width.bit_length()))
        return Mux(only.any(), index[: (self.width - 1).bit_length()], 0)
