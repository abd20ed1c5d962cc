"""SAVE: the rows of a context."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import access_layout, group_of
from rtl.hikv.interface import row_layout
from rtl.hikv.ring import ring_access_layout
from rtl.hikv.saved_rows import entry_rows, header_layout, parts_per_node
from rtl.hikv.scoreboard_layouts import budget_row_layout, state_layout
from rtl.hikv.scores import transfer_layout
from rtl.hikv.section import Part, Section

__all__ = ["Saver"]


class _Phase(enum.Enum, shape=2):
    IDLE = 0
    FETCH = 1
    TAKE = 2
    END = 3


class Saver(wiring.Component):
    """Sends header, ring, heap and scores of a context; the context stays as it is.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        ``budget`` and ``state`` are valid until ``done``.
    budget, state : ``In``
    o : ``Out(stream)``
        Of :func:`rtl.hikv.interface.row_layout`.
    o_heap, i_heap : stream
        Requests for nodes of the heap, and the nodes.
    ring, ring_row
        Access to the ring, and the row read.
    scores, granted, row
        Access to the scores, whether it is done in this clock, and the row read.
    done : ``Out(1)``
        All rows have been taken, for one clock.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "budget": In(budget_row_layout(p)),
            "state": In(state_layout(p)),
            "o": Out(stream.Signature(row_layout(p))),
            "o_heap": Out(stream.Signature(access_layout(p))),
            "i_heap": In(stream.Signature(group_of(p))),
            "ring": Out(ring_access_layout(p)),
            "ring_row": In(data.ArrayLayout(p.slot_width, p.lanes)),
            "scores": Out(transfer_layout(p)),
            "granted": In(1),
            "row": In(data.ArrayLayout(p.score_width, p.lanes)),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.section = section = Section(p)
        phase = Signal(_Phase)
        fetched, arrived = Signal(), Signal()
        content = Signal(p.lanes * p.score_width)

        m.d.comb += [
            section.start.eq(self.start),
            section.budget.eq(self.budget),
            section.next.eq((phase == _Phase.TAKE) & arrived),
            self.done.eq((phase == _Phase.END) & ~self.o.valid),
        ]
        self._request(m, section, phase, fetched)
        self._collect(m, section, phase, arrived, content)

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.Switch(phase):
            with m.Case(_Phase.IDLE):
                with m.If(self.start):
                    m.d.sync += phase.eq(_Phase.FETCH)
            with m.Case(_Phase.FETCH):
                with m.If(fetched):
                    m.d.sync += phase.eq(_Phase.TAKE)
            with m.Case(_Phase.TAKE):
                with m.If(arrived):
                    m.d.sync += [
                        phase.eq(Mux(section.last, _Phase.END, _Phase.FETCH)),
                        self.o.valid.eq(1),
                        self.o.payload.data.eq(content),
                        self.o.payload["last"].eq(section.last),
                    ]
            with m.Case(_Phase.END):
                with m.If(self.done):
                    m.d.sync += phase.eq(_Phase.IDLE)

        return m

    def _request(self, m, section, phase, fetched):
        """Read the row that is next, once the one before has left."""
        p = self.parameters
        parts = parts_per_node(p)
        fetches = (phase == _Phase.FETCH) & ~self.o.valid
        first_part = section.row[:(parts - 1).bit_length()] == 0
        nodes = (self.budget.cap_important + p.ways - 1) >> (p.ways - 1).bit_length()
        # Of its own: what is driven by a switch in part only is emitted as no simulator reads it.
        from_ring, from_scores = Signal(), Signal()
        m.d.comb += [
            self.ring.valid.eq(from_ring),
            self.scores.valid.eq(from_scores),
            self.ring.row.eq(self.budget.ring_base + section.row),
            self.scores.row.eq(self.budget.score_base + section.row),
            self.o_heap.payload.region.base.eq(self.budget.heap_base),
            self.o_heap.payload.region.nodes.eq(nodes),
            self.o_heap.payload.node.eq(section.row >> (parts - 1).bit_length()),
        ]
        with m.Switch(section.part):
            with m.Case(Part.HEADER):
                m.d.comb += fetched.eq(fetches)
            with m.Case(Part.RING):
                m.d.comb += [from_ring.eq(fetches), fetched.eq(fetches)]
            with m.Case(Part.HEAP):
                m.d.comb += [
                    self.o_heap.valid.eq(fetches & first_part),
                    fetched.eq(fetches & (~first_part | self.o_heap.ready)),
                ]
            with m.Case(Part.SCORES):
                m.d.comb += [
                    from_scores.eq(fetches),
                    fetched.eq(self.granted & fetches),
                ]

    def _collect(self, m, section, phase, arrived, content):
        """Content of the row, in the clock in which it is there."""
        p = self.parameters
        parts = parts_per_node(p)
        part = section.row[:(parts - 1).bit_length()]
        takes = phase == _Phase.TAKE
        header = Signal(header_layout(p))
        m.d.comb += [
            header.recent.eq(self.state.recent),
            header.important.eq(self.state.important),
            header.place.eq(self.state.place),
            header.cap_recent.eq(self.budget.cap_recent),
            header.cap_important.eq(self.budget.cap_important),
        ]
        with m.Switch(section.part):
            with m.Case(Part.HEADER):
                m.d.comb += [arrived.eq(takes), content.eq(header.as_value())]
            with m.Case(Part.RING):
                m.d.comb += [arrived.eq(takes), content.eq(self.ring_row.as_value())]
            with m.Case(Part.HEAP):
                width = entry_rows(p).size
                m.d.comb += [
                    arrived.eq(takes & self.i_heap.valid),
                    content.eq(self.i_heap.payload.as_value().word_select(part, width)),
                    self.i_heap.ready.eq(takes & (part == parts - 1)),
                ]
            with m.Case(Part.SCORES):
                m.d.comb += [arrived.eq(takes), content.eq(self.row.as_value())]
