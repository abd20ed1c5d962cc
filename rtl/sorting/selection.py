"""Selection of the highest entries of each vector (HiKV, IV-D)."""

import dataclasses

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import RisParameters, SelectionParameters
from rtl.sorting.index_stream import IndexStream
from rtl.sorting.queue import Queue
from rtl.sorting.ris import Ris
from rtl.sorting.schedules import Target
from rtl.sorting.selection_input import (
    SelectionInput,
    Status,
    beat_layout,
    command_layout,
    outcome_layout,
)
from rtl.sorting.selection_timing import TRIVIAL, clocks_to_mask
from rtl.sorting.sequencer import Sequencer, tag_layout

__all__ = ["Selection", "ris_parameters"]


def ris_parameters(parameters: SelectionParameters) -> RisParameters:
    """Parameters of a sorter that a :class:`Sequencer` can drive."""
    tag_width = Shape.cast(tag_layout(parameters)).width
    return dataclasses.replace(parameters.ris(), tag_width=tag_width)


class Selection(wiring.Component):
    """Selects the ``b_ii`` highest of each vector, or of each chunk of a vector.

    Each transfer on ``i_command`` announces one vector, whose values follow on ``i``, ``ways`` per
    beat, up to and including a beat with ``last``. ``GLOBAL_SORT`` ranks one vector of up to
    ``head_dim`` values by magnitude (Q). ``CHUNK_SORT`` ranks up to ``max_length`` signed values
    (P), cut into chunks of ``head_dim``, each of which starts with a new beat; lanes beyond the end
    of a chunk are ignored. Of every chunk the ``min(b_ii, entries)`` highest are selected; of equal
    values those with the lower index; -0 below +0; NaN below every number.

    One beat per chunk leaves on ``o``, in order, and, if there is an index stream and
    ``index_enable`` is set, the same selection on ``o_index``. Either may be ahead of the other by
    one selection: a selection makes room when both have taken it.

    If ``last`` comes too early, the missing entries are not selected, and ``error`` is set from the
    chunk of that beat on, one beat for each chunk announced. If it does not come where it should,
    the final beat has ``error``, and what follows is discarded up to and including ``last``. A
    command with length 0, a length above ``head_dim`` (``GLOBAL_SORT``) or ``max_length``, ``b_ii``
    above ``head_dim``, or another mode gives one beat with ``error``, ``last`` and an empty mask,
    and its values are discarded up to and including ``last``. Later vectors are not affected.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    i_command : ``In(stream.Signature(command_layout(parameters)))``
        ``mode``, ``length`` in values, ``b_ii``, ``tag``.
    i : ``In(stream.Signature(StructLayout({"values": ArrayLayout(key_width, ways), "last": 1})))``
        fp16 bits, or fp32 bits if ``key_width`` is 32.
    o : ``Out(stream.Signature(StructLayout))``
        ``tag``, ``chunk``, ``last`` (chunk of the vector), ``mask``, ``count`` of its bits,
        ``error``.
    o_index : ``Out(stream.Signature(StructLayout))``
        Only if ``index_lanes`` is not 0. ``indices`` in increasing order, of which the first
        ``count`` are valid; ``end`` (of the selection), ``tag``, ``chunk``, ``last``.
    index_enable : ``In(1)``
        Only if ``index_lanes`` is not 0. Change it only while nothing is in flight.
    status : ``Out(Status)``
        Sticky: ``nan`` among the values, vector ``short`` or ``long``, ``bad_command``.
    clear : ``In(1)``
        Takes the flags back; what sets one in the same clock wins.
    """

    meanings = {
        "i_command": "announces one vector: how to rank it, its length, how many to select",
        "i": "values of the announced vectors, the last beat of each marked",
        "o": "one selection per chunk, as a mask",
        "o_index": "the same selections, as indices in increasing order",
        "index_enable": "whether selections go to the index stream; change only while idle",
        "status": "sticky flags: nan seen, vector too short, too long, bad command",
        "clear": "takes the sticky flags back",
    }

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        outcome = outcome_layout(p)
        shared = {name: outcome[name].shape for name in ("tag", "chunk", "last")}
        selection = data.StructLayout(
            shared | {"mask": p.head_dim, "count": outcome["count"].shape, "error": 1}
        )
        members = {
            "i_command": In(stream.Signature(command_layout(p))),
            "i": In(stream.Signature(beat_layout(p))),
            "o": Out(stream.Signature(selection)),
            "status": Out(Status),
            "clear": In(1),
        }
        if p.index_lanes:
            beat = {
                "indices": data.ArrayLayout(range(p.head_dim), p.index_lanes),
                "count": range(p.index_lanes + 1),
                "end": 1,
            }
            members |= {
                "o_index": Out(stream.Signature(data.StructLayout(beat | shared))),
                "index_enable": In(1),
            }
        super().__init__(members)

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from the last beat of a chunk to its selection, if the block is idle otherwise."""
        ris = self.parameters.ris()
        sort = sum(stage <= ris.merger_stage for stage in ris.registers)
        slowest = max(
            clocks_to_mask(target.groups, target.full, target.boundary, sort)
            for target in Target.all(self.parameters.groups)
        )
        return {
            "i to o, all or nothing selected": TRIVIAL,
            "i to o, whole chunk, slowest b_ii": slowest,
        }

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.source = source = SelectionInput(p)
        m.submodules.sequencer = sequencer = Sequencer(p)
        m.submodules.ris = ris = Ris(ris_parameters(p))
        # One more than the vectors in flight: the next one's may wait while its mask is not ready.
        m.submodules.outcomes = outcomes = Queue(
            outcome_layout(p), depth=p.vectors_in_flight + 2
        )

        wiring.connect(m, wiring.flipped(self.i_command), source.i_command)
        wiring.connect(m, wiring.flipped(self.i), source.i)
        wiring.connect(m, source.o_job, sequencer.i_job)
        wiring.connect(m, source.o, sequencer.i)
        wiring.connect(m, source.o_outcome, outcomes.i)
        wiring.connect(m, sequencer.o_ris, ris.i_sort)
        wiring.connect(m, ris.o_sort, sequencer.i_ris)
        m.d.comb += [self.status.eq(source.status), source.clear.eq(self.clear)]

        outcome = outcomes.o.payload
        mask = Signal(p.head_dim)
        prefix = Cat(place < outcome.count for place in range(p.head_dim))
        valid, retires = Signal(), Signal()
        m.d.comb += [
            mask.eq(Mux(outcome.prefix, prefix, sequencer.o.payload)),
            valid.eq(outcomes.o.valid & (outcome.prefix | sequencer.o.valid)),
            outcomes.o.ready.eq(retires),
            sequencer.o.ready.eq(retires & ~outcome.prefix),
            self.o.payload.mask.eq(mask),
        ]
        m.d.comb += [
            self.o.payload[name].eq(outcome[name])
            for name in ("tag", "chunk", "last", "count", "error")
        ]
        if p.index_lanes:
            self._fork(m, outcome, mask, valid, retires)
        else:
            m.d.comb += [self.o.valid.eq(valid), retires.eq(valid & self.o.ready)]

        return m

    def _fork(self, m, outcome, mask, valid, retires):
        """Give each selection to both streams, at the pace of each."""
        p = self.parameters
        shared = data.StructLayout({
            name: outcome.shape()[name].shape for name in ("tag", "chunk", "last")
        })
        m.submodules.indices = indices = IndexStream(
            width=p.head_dim, lanes=p.index_lanes, context=shared
        )
        given, listed = Signal(), Signal()
        gives, lists = Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(valid & ~given),
            indices.i.valid.eq(valid & ~listed & self.index_enable),
            indices.i.payload.mask.eq(mask),
            gives.eq(given | self.o.ready),
            lists.eq(listed | ~self.index_enable | indices.i.ready),
            retires.eq(valid & gives & lists),
        ]
        with m.If(valid):
            m.d.sync += [given.eq(gives & ~lists), listed.eq(lists & ~gives)]

        beat, listing = self.o_index.payload, indices.o.payload
        m.d.comb += [
            self.o_index.valid.eq(indices.o.valid),
            indices.o.ready.eq(self.o_index.ready),
        ]
        m.d.comb += [beat[n].eq(listing[n]) for n in ("indices", "count", "end")]
        m.d.comb += [
            assign
            for name in ("tag", "chunk", "last")
            for assign in (
                indices.i.payload.context[name].eq(outcome[name]),
                beat[name].eq(listing.context[name]),
            )
        ]
