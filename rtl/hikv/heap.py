"""Vectorised min-heap of many contexts (HiKV, IV-B)."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import RisParameters, ScoreboardParameters
from rtl.hikv.heap_builder import HeapBuilder
from rtl.hikv.heap_interlock import HeapInterlock
from rtl.hikv.heap_layouts import (
    access_layout,
    build_layout,
    group_of,
    halves_layout,
    heap_ris,
    invocation_layout,
    minimum_layout,
    picks_layout,
    region_layout,
    replace_layout,
    tag_layout,
)
from rtl.hikv.heap_path import HeapPath
from rtl.hikv.heap_storage import HeapStorage
from rtl.sorting.entry import Mode

__all__ = ["Heap", "region_layout"]


class Heap(wiring.Component):
    """Keeps the highest entries of each context, the lowest of them at hand.

    A context has a region of ``nodes`` rows from ``base`` on. Node i holds ``ways`` entries (sort
    key, slot), the lowest first, the highest last; none of them ranks above any of its children,
    2i + 1 and 2i + 2. Of equal keys the lower slot ranks higher.

    A transfer on ``i_replace`` puts an entry in the place of the minimum. The entry must rank above
    it, and its slot must not be in the heap. Transfers on ``i_build`` are the nodes of one heap,
    from node 0 on, entries in any order; places without a token are empty (key 0, slot all ones),
    places beyond the capacity blocked (key and slot all ones), from the last node backwards. On
    ``o_minimum`` each replacement and each finished construction answers with the heap's new
    minimum, in the order in which they were accepted (a construction by its last node). The rows
    below the root are still being updated then: the heap itself holds back what would meet them.

    ``i_row`` reads or writes rows as they are. A heap whose rows have all been written, in any
    order, is as it was when they were read. Nothing else may be in flight in that context.

    Replacements of different contexts overlap; a construction step or a raw access waits until they
    have left, and they wait for it. Kinds that wait take turns. Nothing is answered while
    ``o_minimum`` is not taken.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i_replace : ``In(stream.Signature(StructLayout({"region", "key", "slot"})))``
    i_build : ``In(stream.Signature(StructLayout({"region", "entries": group, "last"})))``
        One heap at a time.
    o_minimum : ``Out(stream.Signature(StructLayout({"key", "slot"})))``
    i_row : ``In(stream.Signature(StructLayout({"region", "write", "node", "data": group})))``
    o_row : ``Out(stream.Signature(group))``
        One per read on ``i_row``.
    o_ris_sort, o_ris_pick, i_ris_pick : stream
        To ``i_sort`` and ``i_pick`` and from ``o_pick`` of a :class:`rtl.sorting.ris.Ris` with the
        parameters :attr:`ris`. It must answer in order, tags included, at any pace, and give only
        answers to what was sent from here.
    idle : ``Out(1)``
        Nothing is in flight, no heap is half built, no answer waits.
    parity_error : ``Out(1)``
        For one clock: what was read has the wrong parity. Constant 0 without ``parity``.
    parity_base : ``Out(range(heap_rows))``
        ``base`` of the context that it happened in.
    """

    meanings = {
        "i_replace": "entry that takes the place of the minimum of a context's heap",
        "i_build": "entries of the next node of a heap under construction",
        "o_minimum": "new minimum, one per replacement and per construction",
        "i_row": "raw access to one row",
        "o_row": "row read",
        "o_ris_sort": "to i_sort of the sorter: a node and its parent",
        "o_ris_pick": "to i_pick of the sorter: a node whose minimum was replaced",
        "i_ris_pick": "from o_pick of the sorter",
        "idle": "nothing in flight, no heap half built, no answer waiting",
        "parity_error": "for one clock: wrong parity in a row that was read",
        "parity_base": "with parity_error: first row of the context it happened in",
    }

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i_replace": In(stream.Signature(replace_layout(p))),
            "i_build": In(stream.Signature(build_layout(p))),
            "o_minimum": Out(stream.Signature(minimum_layout(p))),
            "i_row": In(stream.Signature(access_layout(p))),
            "o_row": Out(stream.Signature(group_of(p))),
            "o_ris_sort": Out(stream.Signature(invocation_layout(p))),
            "o_ris_pick": Out(stream.Signature(picks_layout(p))),
            "i_ris_pick": In(stream.Signature(halves_layout(p))),
            "idle": Out(1),
            "parity_error": Out(1),
            "parity_base": Out(range(p.heap_rows)),
        })

    @property
    def ris(self) -> RisParameters:
        """Parameters of the sorter outside."""
        return heap_ris(self.parameters)

    @property
    def latency(self) -> dict[str, int]:
        """Clocks when nothing stalls; to ``o_minimum`` the sorter's pick path comes on top."""
        return {
            "i_replace to o_ris_pick, first node": 3,
            "o_ris_pick to the next node's": 2,
            "i_ris_pick to o_minimum": 1,
        }

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.path = path = HeapPath(p)
        m.submodules.builder = builder = HeapBuilder(p)
        m.submodules.storage = storage = HeapStorage(p)
        m.submodules.interlock = interlock = HeapInterlock(p)
        wiring.connect(m, wiring.flipped(self.i_build), builder.i_build)
        wiring.connect(m, wiring.flipped(self.i_row), builder.i_row)
        wiring.connect(m, wiring.flipped(self.o_row), builder.o_row)
        held = Signal(group_of(p), reset_less=True)
        answers = Signal()

        m.d.comb += [
            self.idle.eq(path.idle & interlock.idle & builder.idle & ~self.o_minimum.valid),
            builder.row_data.eq(storage.o),
            builder.held.eq(held),
            builder.lower.eq(self.i_ris_pick.payload.lower),
            path.minima.eq(storage.minima),
        ]
        self._admit(m, path, builder, interlock)
        self._update(m, path, builder, storage, held)
        self._access(m, path, builder, storage, interlock, answers)
        self._answer(m, builder, answers)
        self._report_parity(m, path, builder, storage)

        return m

    def _admit(self, m, path, builder, interlock):
        """Let either replacements or one job of the builder in."""
        turn = Signal()
        replaces, waits = Signal(), Signal()
        m.d.comb += [
            waits.eq(self.i_build.valid | self.i_row.valid),
            interlock.base.eq(self.i_replace.payload.region.base),
            replaces.eq(interlock.free & ~builder.busy & ~(waits & turn)),
            path.i.valid.eq(self.i_replace.valid & replaces),
            path.i.payload.eq(self.i_replace.payload),
            self.i_replace.ready.eq(path.i.ready & replaces),
            interlock.enter.eq(path.i.valid & path.i.ready),
            # A path leaves the interlock only with its last row, so that this covers it.
            builder.go.eq(interlock.idle & (turn | ~self.i_replace.valid)),
        ]
        with m.If(interlock.enter):
            m.d.sync += turn.eq(1)
        with m.If(builder.busy):
            m.d.sync += turn.eq(0)

    def _update(self, m, path, builder, storage, held):
        """Hold a row without its minimum, and offer it to the sorter."""
        valid = Signal()
        tag = Signal(tag_layout(self.parameters), reset_less=True)
        sort, pick = self.o_ris_sort, self.o_ris_pick
        build_tag = Signal.like(tag)
        m.d.comb += [
            build_tag.build.eq(1),
            build_tag.place.eq(builder.place),
            path.o.ready.eq(~valid | pick.ready),
            pick.valid.eq(valid | builder.pick),
            pick.payload.a.eq(held),
            pick.payload.b.eq(builder.group),
            pick.payload.tag.eq(Mux(builder.busy, build_tag, tag)),
            sort.valid.eq(builder.sort),
            sort.payload.mode.eq(Mode.HEAPIFY_UP),
            sort.payload.a.eq(builder.group),
            sort.payload.b.eq(held),
            sort.payload.tag.eq(build_tag),
            builder.taken.eq((builder.sort & sort.ready) | (builder.pick & pick.ready)),
        ]

        with m.If(pick.ready):
            m.d.sync += valid.eq(0)
        with m.If(path.o.valid & path.o.ready):
            update = path.o.payload
            m.d.sync += [
                valid.eq(1),
                held.eq(storage.o),
                held[0].eq(update.incoming),
                tag.build.eq(0),
                tag.place.eq(update.place),
                tag.last.eq(update.last),
            ]
        with m.If(builder.hold):
            m.d.sync += held.eq(storage.o)

    def _access(self, m, path, builder, storage, interlock, answers):
        """Read for whoever walks; write the sorter's answers in the clocks between."""
        answer = self.i_ris_pick
        tag = Signal(tag_layout(self.parameters))
        taken, place = Signal(), Signal.like(builder.place)
        m.d.comb += [
            tag.eq(answer.payload.tag),
            answers.eq(taken & tag.place.root & ~tag.build),
            # A path reads in every other clock at most: no answer waits longer than one.
            answer.ready.eq(~path.read & ~(tag.place.root & ~tag.build & self.o_minimum.valid)),
            taken.eq(answer.valid & answer.ready),
            builder.result.eq(taken & tag.build),
            interlock.leave.eq(taken & tag.last & ~tag.build),

            storage.read.eq(path.read | builder.read),
            storage.read_minima.eq(path.read_minima),
            # A root under construction comes back as the lower group, and is written from there.
            storage.write.eq((taken & ~(tag.build & tag.place.root)) | builder.write),
            place.eq(Mux(builder.write, builder.place, tag.place)),
            storage.renew.eq(~place.root),
            storage.side.eq(place.side),
            storage.i.eq(Mux(builder.write, builder.group, answer.payload.upper)),
            storage.row.eq(Mux(path.read, path.row,
                               Mux(builder.read, builder.row, place.row))),
            storage.pair.eq(Mux(path.read, path.pair, place.pair)),
        ]

    def _answer(self, m, builder, answers):
        """Hold the new minimum of a root that has been written."""
        minimum = self.i_ris_pick.payload.upper[0]
        built = builder.o_minimum
        m.d.comb += built.ready.eq(~self.o_minimum.valid)

        with m.If(self.o_minimum.ready):
            m.d.sync += self.o_minimum.valid.eq(0)
        with m.If(answers | (built.valid & built.ready)):
            m.d.sync += [
                self.o_minimum.valid.eq(1),
                self.o_minimum.payload.key.eq(Mux(answers, minimum.key, built.payload.key)),
                self.o_minimum.payload.slot.eq(
                    Mux(answers, minimum.index, built.payload.index)),
            ]

    def _report_parity(self, m, path, builder, storage):
        """Tell whose row it was."""
        if not self.parameters.parity:
            return
        base, late = Signal.like(self.parity_base), Signal.like(self.parity_base)
        m.d.comb += [self.parity_error.eq(storage.parity_error), self.parity_base.eq(late)]
        m.d.sync += [
            base.eq(Mux(builder.busy, builder.base, path.base)),
            late.eq(base),
        ]
