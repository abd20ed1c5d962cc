"""Keeps replacements in one context apart."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters

__all__ = ["HeapInterlock"]


class HeapInterlock(wiring.Component):
    """Knows the contexts of up to two replacements in flight, which leave in order.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    base : ``In(range(heap_rows))``
        Of the context that wants to enter.
    free : ``Out(1)``
        It may.
    enter, leave : ``In(1)``
    idle : ``Out(1)``
        Nothing is in flight.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = parameters
        super().__init__({
            "base": In(range(parameters.heap_rows)),
            "free": Out(1),
            "enter": In(1),
            "leave": In(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        older, newer = (Signal.like(self.base, name=name, reset_less=True)
                        for name in ("older", "newer"))
        some, both = Signal(), Signal()

        m.d.comb += [
            self.idle.eq(~some),
            self.free.eq(~both & ~(some & (self.base == older))),
        ]

        # With two in flight nothing enters, so that `newer` needs no comparison.
        with m.If(self.leave):
            m.d.sync += [older.eq(newer), some.eq(both | self.enter), both.eq(0)]
            with m.If(self.enter):
                m.d.sync += older.eq(self.base)
        with m.Elif(self.enter):
            m.d.sync += [some.eq(1), both.eq(some)]
            with m.If(some):
                m.d.sync += newer.eq(self.base)
            with m.Else():
                m.d.sync += older.eq(self.base)

        return m
