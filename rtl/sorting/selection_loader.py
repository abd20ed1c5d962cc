"""Loader of the selection sequencer: arriving groups become operands, two at a time."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import SelectionParameters
from rtl.sorting.microcode import rows_of

__all__ = ["Loader"]


class Loader(wiring.Component):
    """Pairs the groups of one vector after the other; an odd last group goes to memory alone.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    i : stream of ways sort keys
        Groups of the vectors that were started, in order.
    start, context, groups
        A vector begins; only while ``idle``.
    pair, take
        The second of two groups stands at ``i`` / becomes ``second``, in the next clock.
    first, second
        Keys of the pair that was taken last, until ``release``.
    alone, release
        ``first`` is an odd last group / it or the pair is done with.
    first_context, row
        Whose ``first`` is, and the row of memory where its invocation or itself belongs.
    """

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        keys = data.ArrayLayout(p.key_width, p.ways)
        context = range(max(2, p.vectors_in_flight))
        super().__init__({
            "i": In(stream.Signature(keys)),
            "idle": Out(1),
            "start": In(1),
            "context": In(context),
            "groups": In(range(p.groups + 1)),
            "pair": Out(1),
            "take": In(1),
            "first": Out(keys),
            "second": Out(keys),
            "first_context": Out(context),
            "row": Out(range(rows_of(p.groups))),
            "alone": Out(1),
            "release": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        active, held = Signal(), Signal()
        context = Signal.like(self.context, reset_less=True)
        missing = Signal(range(p.groups + 1), reset_less=True)
        position = Signal(range(max(2, p.groups)), reset_less=True)
        first = Signal.like(self.first, reset_less=True)
        second = Signal.like(self.second, reset_less=True)
        row = Signal.like(self.row, reset_less=True)
        single = Signal(reset_less=True)
        odd, final, accepted = position[0], missing == 1, Signal()

        m.d.comb += [
            self.pair.eq(active & odd & self.i.valid),
            self.i.ready.eq(Mux(odd, self.take, active & (~held | self.release))),
            accepted.eq(self.i.valid & self.i.ready),
            self.idle.eq(~active),
            self.first.eq(first),
            self.second.eq(second),
            self.row.eq(row),
            self.alone.eq(held & single),
        ]

        with m.If(self.release):
            m.d.sync += held.eq(0)
        with m.If(accepted):
            m.d.sync += [position.eq(position + 1), missing.eq(missing - 1)]
            with m.If(final):
                m.d.sync += active.eq(0)
            with m.If(odd):
                m.d.sync += second.eq(self.i.payload)
            with m.Else():
                m.d.sync += [
                    first.eq(self.i.payload),
                    self.first_context.eq(context),
                    row.eq(position >> 1),
                    single.eq(final),
                    held.eq(1),
                ]
        with m.If(self.start):
            m.d.sync += [
                active.eq(1),
                context.eq(self.context),
                missing.eq(self.groups),
                position.eq(0),
            ]

        return m
