"""Collects the tokens of an important bank into the nodes of a heap."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import build_layout, group_of
from rtl.hikv.scoreboard_layouts import budget_row_layout, minimum_layout
from rtl.sorting.sort_key import EMPTY

__all__ = ["HeapFill"]


class HeapFill(wiring.Component):
    """Makes as many nodes as the budget asks for, the last places empty or blocked.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        A new heap; ``budget`` is valid from the next clock until ``done``.
    budget : ``In(budget_row_layout)``
    i : ``In(stream)``
        Entries, at most as many as the capacity.
    flush : ``In(1)``
        No entry follows; fill up what is left.
    o : ``Out(stream)``
        Of :func:`rtl.hikv.heap_layouts.build_layout`.
    done : ``Out(1)``
        All nodes have been handed over.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "budget": In(budget_row_layout(p)),
            "i": In(stream.Signature(minimum_layout(p))),
            "flush": In(1),
            "o": Out(stream.Signature(build_layout(p))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        group = Signal(group_of(p), reset_less=True)
        level = Signal(range(p.ways + 1))
        node = Signal(range(p.heap_rows + 1))
        nodes = Signal(range(p.heap_rows + 1))
        in_last = Signal(range(p.ways + 1))
        last = node + 1 == nodes
        node_bits = (p.ways - 1).bit_length()
        offered = self.o.payload

        m.d.comb += [
            nodes.eq((self.budget.cap_important + p.ways - 1) >> node_bits),
            # Of a full last node the lowest bits of the capacity are 0.
            in_last.eq(self.budget.cap_important[:node_bits]),
            self.i.ready.eq(level != p.ways),
            self.done.eq(node == nodes),
            self.o.valid.eq(~self.done & ((level == p.ways) | self.flush)),
            offered.region.base.eq(self.budget.heap_base),
            offered.region.nodes.eq(nodes),
            offered["last"].eq(last),
        ]
        for place in range(p.ways):
            # The last place is the first beyond every capacity that does not fill the node.
            beyond = in_last <= place if place < p.ways - 1 else Const(1)
            blocked = last & (in_last != 0) & beyond
            entry = offered.entries[place]
            with m.If(place < level):
                m.d.comb += entry.eq(group[place])
            with m.Else():
                m.d.comb += [
                    entry.key.eq(Mux(blocked, Const(-1, signed(2)), EMPTY)),
                    entry.index.eq(~0),
                ]

        with m.If(self.i.valid & self.i.ready):
            m.d.sync += level.eq(level + 1)
            m.d.sync += [
                group[level[:node_bits]].key.eq(self.i.payload.key),
                group[level[:node_bits]].index.eq(self.i.payload.slot),
            ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [level.eq(0), node.eq(node + 1)]
        with m.If(self.start):
            m.d.sync += [level.eq(0), node.eq(0)]

        return m
