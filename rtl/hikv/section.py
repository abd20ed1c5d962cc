"""Which row of a saved context comes next."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.saved_rows import parts_per_node
from rtl.hikv.scoreboard_layouts import budget_row_layout, lane_bits

__all__ = ["Part", "Section"]


class Part(enum.Enum, shape=2):
    """Parts of a saved context, in their order."""

    HEADER = 0
    RING = 1
    HEAP = 2
    SCORES = 3


class Section(wiring.Component):
    """Counts through the rows of a saved context; a context without important bank has no HEAP.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        The header is next; ``budget`` is valid from then on.
    budget : ``In(budget_row_layout)``
    next : ``In(1)``
        This row is done.
    part, row : ``Out``
        Which part, and which of its rows.
    last : ``Out(1)``
        This is the last row of all.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "budget": In(budget_row_layout(p)),
            "next": In(1),
            "part": Out(Part),
            "row": Out(range(p.max_slots * parts_per_node(p) + 1)),
            "last": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        lanes = lane_bits(p)
        ways, parts = (p.ways - 1).bit_length(), parts_per_node(p)
        budget = self.budget
        slots = budget.cap_recent + budget.cap_important
        rows = Signal.like(self.row)
        end = Signal()
        with m.Switch(self.part):
            with m.Case(Part.HEADER):
                m.d.comb += rows.eq(1)
            with m.Case(Part.RING):
                m.d.comb += rows.eq((budget.cap_recent + p.lanes - 1) >> lanes)
            with m.Case(Part.HEAP):
                m.d.comb += rows.eq(((budget.cap_important + p.ways - 1) >> ways) * parts)
            with m.Case(Part.SCORES):
                m.d.comb += rows.eq((slots + p.lanes - 1) >> lanes)
        m.d.comb += [
            end.eq(self.row + 1 == rows),
            self.last.eq((self.part == Part.SCORES) & end),
        ]

        with m.If(self.next):
            m.d.sync += self.row.eq(self.row + 1)
            with m.If(end):
                m.d.sync += self.row.eq(0)
                with m.Switch(self.part):
                    with m.Case(Part.HEADER):
                        m.d.sync += self.part.eq(Part.RING)
                    with m.Case(Part.RING):
                        m.d.sync += self.part.eq(
                            Mux(budget.cap_important == 0, Part.SCORES, Part.HEAP)
                        )
                    with m.Default():
                        m.d.sync += self.part.eq(Part.SCORES)
        with m.If(self.start):
            m.d.sync += [self.part.eq(Part.HEADER), self.row.eq(0)]

        return m
