"""Memories of the heap: rows of nodes, and the minima array."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import entry_of, group_of, pair_count
from rtl.memory import Memory, MemoryShape

__all__ = ["HeapStorage"]


class HeapStorage(wiring.Component):
    """One row per node, and one row with the minima of nodes 2i + 1 and 2i + 2 per node i.

    Both memories have one port: ``read`` and ``write`` exclude each other. What was read stands on
    the outputs from the next clock on, until the next read.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    row, pair : ``In(range)``
        Addresses in both memories.
    read : ``In(1)``
        Reads the row.
    read_minima : ``In(2)``
        Reads the minima, if any bit is set; those whose bit is clear do not exist, and are
        undefined.
    write : ``In(1)``
        Writes ``i`` to the row.
    renew : ``In(1)``
        With ``write``: writes the first entry of ``i`` to the minima, in half ``side``.
    side : ``In(1)``
    i, o : group
    minima : ``Out(ArrayLayout(entry, 2))``
    parity_error : ``Out(1)``
        Two clocks after a read: a row or a minimum that exists has the wrong parity.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "row": In(range(p.heap_rows)),
            "pair": In(range(pair_count(p))),
            "read": In(1),
            "read_minima": In(2),
            "write": In(1),
            "renew": In(1),
            "side": In(1),
            "i": In(group_of(p)),
            "o": Out(group_of(p)),
            "minima": Out(data.ArrayLayout(entry_of(p), 2)),
            "parity_error": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        guard = int(p.parity)
        row_bits = Shape.cast(group_of(p)).width
        entry_bits = Shape.cast(entry_of(p)).width
        cell = entry_bits + guard
        m.submodules.rows = rows = Memory(
            MemoryShape(p.heap_rows, row_bits + guard, ports="1rw"), p.storage
        )
        m.submodules.pairs = pairs = Memory(
            MemoryShape(pair_count(p), 2 * cell, ports="1rw", granularity=cell), p.storage
        )
        group, minimum = Value.cast(self.i), Value.cast(self.i[0])
        halves = [pairs.read_data[half * cell:(half + 1) * cell] for half in range(2)]

        m.d.comb += [
            rows.en.eq(self.read | self.write),
            rows.addr.eq(self.row),
            rows.write_en.eq(self.write),
            rows.write_data.eq(Cat(group, group.xor()) if guard else group),
            pairs.en.eq(self.read_minima.any() | (self.write & self.renew)),
            pairs.addr.eq(self.pair),
            pairs.write_en.eq((self.write & self.renew).replicate(2) & Cat(~self.side, self.side)),
            pairs.write_data.eq(Cat(minimum, minimum.xor()).replicate(2) if guard
                                else minimum.replicate(2)),
            Value.cast(self.o).eq(rows.read_data[:row_bits]),
            [Value.cast(self.minima[side]).eq(half[:entry_bits])
             for side, half in enumerate(halves)],
        ]
        if guard:
            fresh = Signal(3)
            wrong = Cat(half.xor() for half in [*halves, rows.read_data])
            m.d.sync += [
                fresh.eq(Cat(self.read_minima, self.read)),
                self.parity_error.eq((fresh & wrong).any()),
            ]

        return m
