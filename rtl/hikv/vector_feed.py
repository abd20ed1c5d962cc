"""Turns of Q and P at the sorter: whole Q, one chunk of P, Q first."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from golden.parameters import HikvSelectorParameters
from rtl.hikv.group_sum import beat_layout, sum_rows
from rtl.hikv.interface import Grouping, selection_layout
from rtl.hikv.step_ring import step_layout
from rtl.hikv.vector_source import part_layout
from rtl.sorting.selection_input import job_layout

__all__ = ["VectorFeed", "vector_layout"]


def vector_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """One vector (Q or a chunk of P) whose selection is to come.

    ``dimensions``: Q; ``prefix``: the first ``count`` entries are selected, nothing is sorted;
    ``unites``, ``opens``, ``closes``: the selection is part of a union, the first, the last.
    """
    selection = selection_layout(p)
    names = ("context", "query", "tag", "chunk", "last", "count")
    return data.StructLayout({name: selection[name].shape for name in names} | {
        "dimensions": 1, "prefix": 1, "unites": 1, "opens": 1, "closes": 1
    })


class VectorFeed(wiring.Component):
    """Takes one vector after the other, a job for each that must be sorted, then its values.

    A vector starts when its first values are there, Q before P, and holds the other up until it is
    through. Two clocks per vector and one per group of values, at least; a vector waits until the
    values of the one before are ``idle``.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i_q, i_p : stream of :func:`rtl.hikv.vector_source.part_layout`
    step_q, step_p
        Step that the values belong to.
    o_job : stream of :func:`rtl.sorting.selection_input.job_layout`
    o : stream of :func:`rtl.hikv.group_sum.beat_layout`
    vector
        Vector that the values on ``o`` belong to.
    starts : ``Out(1)``
        A vector to be selected from begins in this clock.
    idle, room : ``In(1)``
        The values before are through; one more selection has room.
    empty : ``Out(1)``
        No vector is begun.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        part = stream.Signature(part_layout(p))
        super().__init__({
            "i_q": In(part),
            "i_p": In(part),
            "step_q": In(step_layout(p)),
            "step_p": In(step_layout(p)),
            "o_job": Out(stream.Signature(job_layout(p.selection()))),
            "o": Out(stream.Signature(beat_layout(p))),
            "vector": Out(vector_layout(p)),
            "starts": Out(1),
            "idle": In(1),
            "room": In(1),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        step = Signal(step_layout(p), reset_less=True)
        magnitude = Signal(reset_less=True)
        size = Signal(range(p.head_dim + 1), reset_less=True)
        b_ii = Signal.like(size, reset_less=True)
        left = Signal.like(size, reset_less=True)
        row = Signal(range(sum_rows(p)), reset_less=True)
        adds, ranks, trivial = (Signal(name=n) for n in ("adds", "ranks", "trivial"))
        chunk = self._chunks(m, step, magnitude, size)

        fits, moves, last_beat = Signal(), Signal(), Signal()
        part = Mux(magnitude, self.i_q.payload.as_value(), self.i_p.payload.as_value())
        part = data.View(part_layout(p), part)
        whole, none = b_ii >= size, b_ii == 0
        beat = self.o.payload
        m.d.comb += [
            adds.eq(step.grouping == Grouping.PER_GROUP),
            ranks.eq(~adds | step.last),
            trivial.eq(whole | none),
            fits.eq(self.idle & (~ranks | self.room)),
            last_beat.eq(left <= p.ways),
            moves.eq(self.o.valid & self.o.ready),
            beat.values.eq(part.values.as_value()),
            beat.error.eq(part.error),
            beat.present.eq(Cat(lane < left for lane in range(p.ways))),
            beat.row.eq(row),
            beat.magnitude.eq(magnitude),
            beat.adds.eq(adds),
            beat.opens.eq(step.first),
            beat.keeps.eq(ranks & ~trivial),
            beat.last.eq(last_beat),
            beat.ranks.eq(ranks),
        ]
        self._job(m, size, b_ii, magnitude)

        with m.If(moves):
            m.d.sync += [left.eq(left - p.ways), row.eq(row + 1)]
        with m.FSM():
            with m.State("START"):
                m.d.comb += self.empty.eq(1)
                with m.If(self.i_q.valid):
                    m.d.sync += [
                        step.eq(self.step_q),
                        magnitude.eq(1),
                        size.eq(p.head_dim),
                        b_ii.eq(self.step_q.b_iik),
                        row.eq(sum_rows(p) - p.head_dim // p.ways),
                    ]
                    m.next = "JOB"
                with m.Elif(self.i_p.valid):
                    m.d.sync += [
                        step.eq(self.step_p),
                        magnitude.eq(0),
                        size.eq(chunk.size),
                        b_ii.eq(self.step_p.b_iiv),
                        row.eq(chunk.row),
                    ]
                    m.next = "JOB"

            with m.State("JOB"):
                m.d.comb += self.o_job.valid.eq(fits & ranks & ~trivial)
                with m.If(fits & (~ranks | trivial | self.o_job.ready)):
                    m.d.comb += self.starts.eq(ranks)
                    m.d.sync += [
                        left.eq(size),
                        self.vector.prefix.eq(trivial),
                        self.vector.count.eq(Mux(whole, size, b_ii)),
                        self.vector.dimensions.eq(magnitude),
                        self.vector.chunk.eq(Mux(magnitude, 0, chunk.number)),
                        self.vector.last.eq(magnitude | chunk.last),
                        self.vector.unites.eq(step.grouping == Grouping.UNION),
                        self.vector.opens.eq(step.first),
                        self.vector.closes.eq(step.last),
                    ]
                    m.d.sync += [
                        self.vector[name].eq(step[name]) for name in ("context", "query", "tag")
                    ]
                    m.next = "VALUES"

            with m.State("VALUES"):
                source = Mux(magnitude, self.i_q.valid, self.i_p.valid)
                m.d.comb += [
                    self.o.valid.eq(source),
                    self.i_q.ready.eq(magnitude & self.o.ready),
                    self.i_p.ready.eq(~magnitude & self.o.ready),
                ]
                with m.If(moves & last_beat):
                    m.d.comb += chunk.ends.eq(~magnitude)
                    m.next = "START"

        return m

    def _job(self, m, size, b_ii, magnitude):
        ways = exact_log2(self.parameters.ways)
        job = self.o_job.payload
        m.d.comb += [
            job.chunk_sort.eq(~magnitude),
            job.groups.eq((size + ((1 << ways) - 1)) >> ways),
            job.full.eq(b_ii >> ways),
            job.rest.eq(b_ii[:ways]),
        ]

    def _chunks(self, m, step, magnitude, size):
        """Where in P the next chunk is; it moves on when a chunk ``ends``."""
        p = self.parameters
        groups = p.head_dim // p.ways
        chunk = Signal(data.StructLayout({
            "size": range(p.head_dim + 1),
            "row": range(sum_rows(p)),
            "number": selection_layout(p)["chunk"].shape,
            "last": 1,
            "ends": 1,
        }))
        begun = Signal()
        left = Signal(range(p.max_slots + 1), reset_less=True)
        row = Signal.like(chunk.row, reset_less=True)
        number = Signal.like(chunk.number, reset_less=True)
        remaining = Signal.like(left)
        m.d.comb += [
            remaining.eq(Mux(begun, left, self.step_p.occupied)),
            chunk.size.eq(Mux(remaining > p.head_dim, p.head_dim, remaining)),
            chunk.last.eq(remaining <= p.head_dim),
            chunk.row.eq(Mux(begun, row, 0)),
            chunk.number.eq(Mux(begun, number, 0)),
        ]
        with m.If(chunk.ends):
            m.d.sync += [
                begun.eq(~chunk.last),
                left.eq(remaining - p.head_dim),
                row.eq(chunk.row + groups),
                number.eq(chunk.number + 1),
            ]
        return chunk
