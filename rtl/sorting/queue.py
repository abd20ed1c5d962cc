"""Small first-in, first-out queue in registers."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Holds up to ``depth`` payloads; one goes in and one out per clock, in order.

    A payload appears on ``o`` in the clock after it was taken.

    Parameters
    ----------
    shape : Shape-like
    depth : int
        At least 2.

    Members
    -------
    i, o : stream of ``shape``
    """

    def __init__(self, shape, *, depth: int):
        if depth < 2:
            raise ValueError(f"Depth must be at least 2, not {depth!r}")
        self.shape = shape
        self.depth = depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        rows = Signal(data.ArrayLayout(self.shape, self.depth), reset_less=True)
        head, tail = Signal(range(self.depth)), Signal(range(self.depth))
        level = Signal(range(self.depth + 1))
        puts, gets = Signal(), Signal()

        m.d.comb += [
            self.i.ready.eq(level != self.depth),
            self.o.valid.eq(level != 0),
            self.o.payload.eq(rows[head]),
            puts.eq(self.i.valid & self.i.ready),
            gets.eq(self.o.valid & self.o.ready),
        ]

        m.d.sync += level.eq(level + puts - gets)
        with m.If(puts):
            m.d.sync += [
                rows[tail].eq(self.i.payload),
                tail.eq(Mux(tail == self.depth - 1, 0, tail + 1)),
            ]
        with m.If(gets):
            m.d.sync += head.eq(Mux(head == self.depth - 1, 0, head + 1))

        return m
