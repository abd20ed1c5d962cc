"""Path phase of an insertion: which nodes it touches, and what each of them gains."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import (
    entry_of,
    outranks,
    pair_count,
    region_layout,
    replace_layout,
    update_layout,
)

__all__ = ["HeapPath"]


class HeapPath(wiring.Component):
    """Walks from the root to the place of a newcomer with the minima array alone, top down.

    A node on the path loses its minimum; it gains the lower of its children's minima if the
    newcomer ranks above that, and the path goes on there, else the newcomer, and the path ends. Of
    two equal minima the left child's counts. A level takes two clocks: the minima, and the row that
    will be updated, are read in the first, ``o`` is valid from the second on.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i : stream of :func:`rtl.hikv.heap_layouts.replace_layout`
        Taken while no path is being walked.
    o : stream of :func:`rtl.hikv.heap_layouts.update_layout`
    read : ``Out(1)``
        Reads ``row`` and ``pair`` of the memories in this clock; neither can wait.
    read_minima : ``Out(2)``
        Children that exist.
    row, pair : ``Out(range)``
    minima : ``In(ArrayLayout(entry, 2))``
        Of the latest read; those of children that do not exist may be anything.
    base : ``Out(range)``
        First row of the context whose path is walked.
    idle : ``Out(1)``
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(replace_layout(p))),
            "o": Out(stream.Signature(update_layout(p))),
            "read": Out(1),
            "read_minima": Out(2),
            "row": Out(range(p.heap_rows)),
            "pair": Out(range(pair_count(p))),
            "minima": In(data.ArrayLayout(entry_of(p), 2)),
            "base": Out(range(p.heap_rows)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        region = Signal(region_layout(p), reset_less=True)
        newcomer = Signal(entry_of(p), reset_less=True)
        node = Signal(range(p.heap_rows), reset_less=True)
        children = Signal(2, reset_less=True)
        pair = Signal.like(self.pair, reset_less=True)
        place = Signal(self.o.payload.place.shape(), reset_less=True)
        left, right = self.minima[0], self.minima[1]
        side, descends = Signal(), Signal()

        # The three comparisons stand side by side: each is long for one clock beside the memory.
        m.d.comb += [
            side.eq(children[1] & outranks(left, right)),
            descends.eq(children[0] & Mux(side, outranks(newcomer, right),
                                          outranks(newcomer, left))),
            self.base.eq(region.base),
            self.row.eq(region.base + node),
            self.pair.eq((region.base >> 1) + node),
            self.read_minima.eq(Cat(self.read & (2 * node + 1 < region.nodes),
                                    self.read & (2 * node + 2 < region.nodes))),
            self.o.payload.place.eq(place),
            self.o.payload.last.eq(~descends),
            self.o.payload.incoming.eq(Mux(descends, Mux(side, right, left), newcomer)),
        ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.idle.eq(1), self.i.ready.eq(1)]
                m.d.sync += [
                    region.eq(self.i.payload.region),
                    newcomer.key.eq(self.i.payload.key),
                    newcomer.index.eq(self.i.payload.slot),
                    node.eq(0),
                    place.eq(0),
                    place.root.eq(1),
                ]
                with m.If(self.i.valid):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.read.eq(1)
                m.d.sync += [
                    place.row.eq(self.row),
                    pair.eq(self.pair),
                    children.eq(self.read_minima),
                ]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [
                        node.eq(2 * node + 1 + side),
                        place.pair.eq(pair),
                        place.side.eq(side),
                        place.root.eq(0),
                    ]
                    with m.If(descends):
                        m.next = "READ"
                    with m.Else():
                        m.next = "IDLE"

        return m
