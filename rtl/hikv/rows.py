"""Rows in a single-port memory, lanes written one by one, with a parity bit each if wanted."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.memory import Memory, MemoryShape

__all__ = ["Rows"]


class Rows(wiring.Component):
    """A single-port memory whose rows are checked when they are read.

    Parameters
    ----------
    depth : int
        Rows, at least 2.
    lanes : int
        Parts of a row that are written by themselves.
    width : int
        Bits of a lane.
    parity : bool
        One more bit per lane, so that their number of ones is even.
    storage : {"array", "registers"}

    Members
    -------
    en : ``In(1)``
        Reads the row ``addr``, or writes it if a bit of ``write`` is set.
    addr : ``In(range(depth))``
    write : ``In(lanes)``
    write_data : ``In(lanes * width)``
    read_data : ``Out(lanes * width)``
        Of the latest read, from the next clock on.
    error : ``Out(1)``
        In the clock after a read: the row is not what was written.
    """

    def __init__(self, depth: int, lanes: int, width: int, *, parity: bool, storage: str):
        self.depth, self.lanes, self.width = depth, lanes, width
        self.parity, self.storage = parity, storage
        super().__init__({
            "en": In(1),
            "addr": In(range(depth)),
            "write": In(lanes),
            "write_data": In(lanes * width),
            "read_data": Out(lanes * width),
            "error": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        stored = self.width + self.parity
        granularity = stored if self.lanes > 1 else None
        shape = MemoryShape(self.depth, self.lanes * stored, "1rw", granularity)
        m.submodules.memory = memory = Memory(shape, storage=self.storage)
        wrong = []

        m.d.comb += [
            memory.en.eq(self.en),
            memory.addr.eq(self.addr),
            memory.write_en.eq(self.write),
        ]
        for lane in range(self.lanes):
            given = self.write_data.word_select(lane, self.width)
            found = memory.read_data.word_select(lane, stored)
            m.d.comb += self.read_data.word_select(lane, self.width).eq(found[:self.width])
            bits = Cat(given, given.xor()) if self.parity else given
            m.d.comb += memory.write_data.word_select(lane, stored).eq(bits)
            wrong.append(found.xor())
        if self.parity:
            reads = Signal()
            m.d.sync += reads.eq(self.en & ~self.write.any())
            m.d.comb += self.error.eq(reads & Cat(wrong).any())

        return m
