"""Slots of the recent banks, in the order in which they came."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.rows import Rows

__all__ = ["Ring", "ring_access_layout"]


def ring_access_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Read a row, or write those places of it that ``write`` names."""
    return data.StructLayout({
        "valid": 1,
        "row": range(p.ring_rows),
        "write": p.lanes,
        "slots": data.ArrayLayout(p.slot_width, p.lanes),
    })


class Ring(wiring.Component):
    """Rings of slots, ``lanes`` places in a row.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    access : ``In(ring_access_layout)``
    row : ``Out(ArrayLayout(slot_width, lanes))``
        The row read last, from the next clock on.
    error : ``Out(1)``
        Parity, in the clock after a read.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "access": In(ring_access_layout(p)),
            "row": Out(data.ArrayLayout(p.slot_width, p.lanes)),
            "error": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.rows = rows = Rows(
            p.ring_rows, p.lanes, p.slot_width, parity=p.parity, storage=p.storage
        )

        m.d.comb += [
            rows.en.eq(self.access.valid),
            rows.addr.eq(self.access.row),
            rows.write.eq(self.access.write),
            rows.write_data.eq(self.access.slots.as_value()),
            self.row.as_value().eq(rows.read_data),
            self.error.eq(rows.error),
        ]

        return m
