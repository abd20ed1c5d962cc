"""Selections to come: which vector each belongs to, and which of its entries weigh anything."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.group_sum import beat_layout
from rtl.hikv.vector_feed import vector_layout
from rtl.memory import Memory, MemoryShape
from rtl.sorting.sort_key import EMPTY, sort_key

__all__ = ["SelectionRows", "row_layout"]


def row_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """Vector whose values are all through; ``weighs``: entries that are not zero in all heads."""
    return data.StructLayout({"vector": vector_layout(p), "weighs": p.head_dim, "error": 1})


class SelectionRows(wiring.Component):
    """Passes sort keys on, and remembers each vector until its selection is made.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i : stream of :func:`rtl.hikv.group_sum.beat_layout`
    vector : :func:`rtl.hikv.vector_feed.vector_layout`
        Of the beats on ``i``.
    starts : ``In(1)``
        A vector to be selected from begins.
    room : ``Out(1)``
        One more may begin.
    o_keys : stream of ways sort keys
        Of the beats that are kept.
    o : stream of :func:`row_layout`
        One for each vector begun, in order. The payload stands until the one after is taken.
    idle, empty : ``Out(1)``
        No vector is half way through; none is in here.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(beat_layout(p))),
            "vector": In(vector_layout(p)),
            "starts": In(1),
            "room": Out(1),
            "o_keys": Out(stream.Signature(data.ArrayLayout(16, p.ways))),
            "o": Out(stream.Signature(row_layout(p))),
            "idle": Out(1),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        groups = p.head_dim // p.ways
        depth = p.vectors_in_flight + 2
        row = Signal(row_layout(p), reset_less=True)
        weighs = data.View(data.ArrayLayout(p.ways, groups), row.weighs)
        group = Signal(range(max(2, groups)))
        writes, begun = Signal(), Signal()
        promised, written = Signal(range(depth + 1)), Signal(range(depth + 1))
        tail, head = Signal(range(depth)), Signal(range(depth))
        m.submodules.rows = rows = Memory(
            MemoryShape(depth, Shape.cast(row.shape()).width)
        )

        beat = self.i.payload
        taken, fetches, retires = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~beat.keeps | self.o_keys.ready),
            self.o_keys.valid.eq(self.i.valid & beat.keeps),
            self.o_keys.payload.eq(Cat(
                Mux(beat.present[lane], sort_key(value, beat.magnitude), EMPTY)
                for lane, value in enumerate(beat.values)
            )),
            taken.eq(self.i.valid & self.i.ready),
            self.idle.eq(~writes & ~begun),
            self.room.eq(promised != depth),
            self.empty.eq(promised == 0),
        ]

        with m.If(taken):
            m.d.sync += [
                group.eq(Mux(beat.last, 0, group + 1)),
                begun.eq(~beat.last),
                row.vector.eq(self.vector),
                row.error.eq(beat.error),
            ]
            for n in range(groups):
                with m.If(group == n):
                    m.d.sync += weighs[n].eq(beat.weighs)
        m.d.sync += writes.eq(taken & beat.last & beat.ranks)

        m.d.comb += [
            rows.write_en.eq(writes),
            rows.write_addr.eq(tail),
            rows.write_data.eq(row.as_value()),
            # The row after is fetched when the one before is taken, so that it stands still.
            fetches.eq((written != 0) & ~self.o.valid),
            rows.read_en.eq(fetches),
            rows.read_addr.eq(head),
            self.o.payload.eq(rows.read_data),
            retires.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += [
            promised.eq(promised + self.starts - retires),
            written.eq(written + writes - fetches),
        ]
        with m.If(writes):
            m.d.sync += tail.eq(Mux(tail == depth - 1, 0, tail + 1))
        with m.If(fetches):
            m.d.sync += [head.eq(Mux(head == depth - 1, 0, head + 1)), self.o.valid.eq(1)]
        with m.If(retires):
            m.d.sync += self.o.valid.eq(0)

        return m
