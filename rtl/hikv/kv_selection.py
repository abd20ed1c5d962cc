"""Selection of K elements and V slots for the query heads of many contexts."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.group_sum import GroupSum
from rtl.hikv.interface import Grouping, weights_layout
from rtl.hikv.selection_results import SelectionResults, selection_members
from rtl.hikv.selection_rows import SelectionRows
from rtl.hikv.step_ring import StepRing, step_layout
from rtl.hikv.vector_feed import VectorFeed
from rtl.hikv.vector_source import VectorSource
from rtl.sorting.queue import Queue
from rtl.sorting.sequencer import Sequencer

__all__ = ["KvSelection", "copy_layout"]


def copy_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """Weights for the score generator: of the length announced, whatever came.

    ``last``: last beat of the query head; ``final``: this is the last query head of the step.
    """
    return data.StructLayout({
        "context": step_layout(p)["context"].shape,
        "values": data.ArrayLayout(unsigned(16), p.lanes),
        "last": 1,
        "final": 1,
    })


class KvSelection(wiring.Component):
    """Selects for each step the elements of K by its Q, and the slots of V by its P.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i_step : stream of :func:`rtl.hikv.step_ring.step_layout`
    i_q, i_p : stream of :func:`rtl.hikv.interface.weights_layout`
        One vector per step each, in order.
    o_p : stream of :func:`copy_layout`
    o_k, o_v, o_k_index, o_v_index, index_enable
        See :class:`rtl.hikv.selection_results.SelectionResults`.
    o_ris, i_ris : stream
        See :class:`rtl.sorting.sequencer.Sequencer`.
    context, pending
        Context that is asked about; whether the P of one of its steps is not through.
    abort, abort_context
        The selections of steps of that context that are still to come have ``error``.
    q_fault, p_fault, nan : ``Out(1)``
        A Q or P is too short or too long; values are NaN. One clock.
    q_step, p_step
        Step of a fault.
    starves : ``Out(1)``
        There is nothing to do but wait for Q or P.
    idle : ``Out(1)``
        Nothing is under way.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        self._sequencer = Sequencer(p.selection())
        ris = self._sequencer.signature.members
        context = step_layout(p)["context"].shape
        super().__init__({
            "i_step": In(stream.Signature(step_layout(p))),
            "i_q": In(stream.Signature(weights_layout(p))),
            "i_p": In(stream.Signature(weights_layout(p))),
            "o_p": Out(stream.Signature(copy_layout(p))),
            "o_ris": ris["o_ris"],
            "i_ris": ris["i_ris"],
            "context": In(context),
            "pending": Out(1),
            "abort": In(1),
            "abort_context": In(context),
            "q_fault": Out(1),
            "p_fault": Out(1),
            "q_step": Out(step_layout(p)),
            "p_step": Out(step_layout(p)),
            "nan": Out(1),
            "starves": Out(1),
            "idle": Out(1),
        } | selection_members(p))

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.ring = ring = StepRing(p)
        m.submodules.q = q = VectorSource(p, limit=p.head_dim, copies=False)
        m.submodules.p = weights = VectorSource(p, limit=p.max_slots, copies=True)
        m.submodules.feed = feed = VectorFeed(p)
        m.submodules.sums = sums = GroupSum(p)
        m.submodules.rows = rows = SelectionRows(p)
        # Cuts the path from the sorter's grant to the registers before it.
        m.submodules.keys = keys = Queue(data.ArrayLayout(16, p.ways), depth=2)
        m.submodules.sequencer = sequencer = self._sequencer
        m.submodules.results = results = SelectionResults(p)

        flipped = wiring.flipped
        wiring.connect(m, flipped(self.i_step), ring.i)
        wiring.connect(m, flipped(self.i_q), q.i)
        wiring.connect(m, flipped(self.i_p), weights.i)
        self._source(m, q, ring.o_q, feed.i_q, feed.step_q, p.head_dim)
        self._source(m, weights, ring.o_p, feed.i_p, feed.step_p, ring.o_p.payload.occupied)
        wiring.connect(m, feed.o, sums.i)
        wiring.connect(m, feed.o_job, sequencer.i_job)
        wiring.connect(m, sums.o, rows.i)
        wiring.connect(m, rows.o_keys, keys.i)
        wiring.connect(m, keys.o, sequencer.i)
        wiring.connect(m, sequencer.o_ris, flipped(self.o_ris))
        wiring.connect(m, flipped(self.i_ris), sequencer.i_ris)
        wiring.connect(m, sequencer.o, results.i_mask)
        wiring.connect(m, rows.o, results.i)
        for name in ("o_k", "o_v", *(("o_k_index", "o_v_index") if p.index_lanes else ())):
            wiring.connect(m, getattr(results, name), flipped(getattr(self, name)))
        if p.index_lanes:
            m.d.comb += results.index_enable.eq(self.index_enable)

        m.d.comb += [
            rows.vector.eq(feed.vector),
            rows.starts.eq(feed.starts),
            feed.room.eq(rows.room),
            feed.idle.eq(sums.idle & rows.idle),
            ring.context.eq(self.context),
            ring.abort.eq(self.abort),
            ring.abort_context.eq(self.abort_context),
            self.pending.eq(ring.pending),
            self.q_fault.eq(q.fault),
            self.p_fault.eq(weights.fault),
            self.q_step.eq(ring.o_q.payload),
            self.p_step.eq(ring.o_p.payload),
            self.nan.eq(sums.nan),
            self.starves.eq(
                ~ring.empty & feed.empty & ~feed.i_q.valid & ~feed.i_p.valid & rows.empty
            ),
            self.idle.eq(ring.empty & feed.empty & feed.idle & rows.empty & results.idle),
            self.o_p.valid.eq(weights.o_wide.valid),
            weights.o_wide.ready.eq(self.o_p.ready),
            self.o_p.payload.values.eq(weights.o_wide.payload.values.as_value()),
            self.o_p.payload["last"].eq(weights.o_wide.payload["last"]),
            self.o_p.payload.final.eq(ring.o_p.payload["last"]),
            self.o_p.payload.context.eq(ring.o_p.payload.context),
        ]

        return m

    def _source(self, m, source, step, part, feed_step, length):
        """Give a step's values to the feed; a faulty head spoils what its group shares."""
        payload = step.payload
        failed = Signal(name=f"{source.copies}_failed")
        shares = ~payload.first & (payload.grouping != Grouping.PER_QUERY)
        m.d.comb += [
            source.i_length.valid.eq(step.valid),
            source.i_length.payload.eq(length),
            step.ready.eq(source.i_length.ready),
            feed_step.eq(payload),
            part.valid.eq(source.o.valid),
            source.o.ready.eq(part.ready),
            part.payload.values.eq(source.o.payload.values.as_value()),
            part.payload.error.eq(
                source.o.payload.error | payload.aborted | (failed & shares)
            ),
        ]
        with m.If(step.valid & step.ready):
            m.d.sync += failed.eq(
                source.o.payload.error | payload.aborted | (failed & shares)
            )
