"""Empties the rows of a context before it is made anew."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.ring import ring_access_layout
from rtl.hikv.scoreboard_layouts import UNOCCUPIED, budget_row_layout, lane_bits
from rtl.hikv.scores import transfer_layout

__all__ = ["Wipe"]


class Wipe(wiring.Component):
    """Marks all slots of a context as unoccupied, and fills its ring with zeros.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        ``budget`` is valid from the next clock until ``busy`` ends.
    budget : ``In(budget_row_layout)``
    busy : ``Out(1)``
        From the clock after ``start``.
    scores, granted
        Access to the scores, and whether it is done in this clock.
    ring : ``Out(ring_access_layout)``
        Always done at once.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "budget": In(budget_row_layout(p)),
            "busy": Out(1),
            "scores": Out(transfer_layout(p)),
            "granted": In(1),
            "ring": Out(ring_access_layout(p)),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        lanes = lane_bits(p)
        row = Signal(range(-(-p.max_slots // p.lanes) + 1))
        slots = Signal(range(p.max_slots + 1))
        score_rows, ring_rows = Signal.like(row), Signal.like(row)

        m.d.comb += [
            slots.eq(self.budget.cap_recent + self.budget.cap_important),
            score_rows.eq((slots + p.lanes - 1) >> lanes),
            ring_rows.eq((self.budget.cap_recent + p.lanes - 1) >> lanes),
            self.scores.valid.eq(self.busy),
            self.scores.row.eq(self.budget.score_base + row),
            self.scores.write.eq(~0),
            self.scores.data.eq(Const(UNOCCUPIED, signed(2))),
            self.ring.valid.eq(self.busy & (row < ring_rows)),
            self.ring.row.eq(self.budget.ring_base + row),
            self.ring.write.eq(~0),
        ]

        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), row.eq(0)]
        with m.Elif(self.busy & self.granted):
            m.d.sync += [row.eq(row + 1), self.busy.eq(row + 1 != score_rows)]

        return m
