"""KV selection controller: selections of vectors become those of K elements and V slots."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import selection_layout
from rtl.hikv.selection_rows import row_layout
from rtl.memory import Memory, MemoryShape
from rtl.sorting.index_stream import IndexStream

__all__ = ["SelectionResults", "index_layout", "selection_members"]

_BLOCK = 16


def index_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """List one selection in increasing order: the first ``count`` indices are valid.

    ``end``: last beat of the selection; the rest as in the selection itself.
    """
    selection = selection_layout(p)
    return data.StructLayout({
        "indices": data.ArrayLayout(range(p.head_dim), p.index_lanes),
        "count": range(p.index_lanes + 1),
        "end": 1,
    } | {name: selection[name].shape for name in _SHARED})


_SHARED = ("context", "query", "tag", "chunk", "last", "error")


def selection_members(p: HikvSelectorParameters) -> dict[str, wiring.Member]:
    """Ports for selections: masks, and, if ``index_lanes`` is not 0, index streams."""
    selection = stream.Signature(selection_layout(p))
    members = {"o_k": Out(selection), "o_v": Out(selection)}
    if p.index_lanes:
        indices = stream.Signature(index_layout(p))
        members |= {"o_k_index": Out(indices), "o_v_index": Out(indices), "index_enable": In(1)}
    return members


class SelectionResults(wiring.Component):
    """Unites the selections of a group, and leaves out slots that weigh nothing.

    A union takes in the selections of each head; the last head's vector gives it. Slots whose P is
    zero in all heads that the selection serves are left out of V selections. One selection in at
    least six clocks.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i : stream of :func:`rtl.hikv.selection_rows.row_layout`
    i_mask : stream of head_dim bits
        One for each vector that is no ``prefix``.
    o_k, o_v : stream of :func:`rtl.hikv.interface.selection_layout`
    o_k_index, o_v_index : stream of :func:`index_layout`
        Only if ``index_lanes`` is not 0.
    index_enable : ``In(1)``
        Only if ``index_lanes`` is not 0. Whether selections are listed too.
    idle : ``Out(1)``
        No selection is half way through, or being listed.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(row_layout(p))),
            "i_mask": In(stream.Signature(p.head_dim)),
            "idle": Out(1),
        } | selection_members(p))

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        row, vector = self.i.payload, self.i.payload.vector
        mask = Signal(p.head_dim, reset_less=True)
        result = Signal(selection_layout(p), reset_less=True)
        dimensions = Signal(reset_less=True)
        blocks = [mask[start : start + _BLOCK] for start in range(0, p.head_dim, _BLOCK)]
        counts = [
            Signal(range(_BLOCK + 1), name=f"count_{n}", reset_less=True)
            for n in range(len(blocks))
        ]
        offered, sent, lists = Signal(), Signal(), Signal()

        # A clock after the memory gave them, for the comparisons take long.
        seen, prefix = Signal(), Signal(reset_less=True)
        count = Signal.like(vector.count, reset_less=True)
        m.d.sync += [
            seen.eq(self.i.valid & ~self.i.ready),
            prefix.eq(vector.prefix),
            count.eq(vector.count),
        ]
        first = Mux(prefix, Cat(n < count for n in range(p.head_dim)), self.i_mask.payload)
        there, merges = Signal(), Signal()
        selected, weighs = self._unite(m, mask, there, merges)
        m.d.comb += [
            result.mask.eq(mask),
            self.o_k.payload.eq(result),
            self.o_v.payload.eq(result),
        ]

        with m.FSM():
            with m.State("MASK"):
                m.d.comb += [
                    self.idle.eq(~lists),
                    there.eq(seen & (prefix | self.i_mask.valid)),
                    self.i_mask.ready.eq(there & ~prefix),
                ]
                m.d.sync += mask.eq(first)
                with m.If(there):
                    m.next = "MERGE"

            with m.State("MERGE"):
                m.d.comb += [merges.eq(1), self.i.ready.eq(1)]
                m.d.sync += [
                    mask.eq(selected & (weighs | vector.dimensions.replicate(p.head_dim))),
                    dimensions.eq(vector.dimensions),
                    result.error.eq(row.error),
                ]
                m.d.sync += [result[name].eq(vector[name]) for name in _SHARED[:-1]]
                m.next = "COUNT"
                with m.If(vector.unites & ~vector.closes):
                    m.next = "MASK"

            with m.State("COUNT"):
                m.d.sync += [
                    total.eq(sum(block)) for total, block in zip(counts, blocks, strict=True)
                ]
                m.next = "TOTAL"

            with m.State("TOTAL"):
                m.d.sync += result.count.eq(sum(counts))
                m.next = "SEND"

            with m.State("SEND"):
                m.d.comb += offered.eq(1)
                with m.If(sent):
                    m.next = "MASK"

        self._send(m, result, dimensions, offered, sent, lists)

        return m

    def _unite(self, m, mask, there, merges):
        """Add to the selected and the weighing entries of the heads so far."""
        p = self.parameters
        row, vector = self.i.payload, self.i.payload.vector
        if p.queries == 1:
            return mask, row.weighs
        union = data.StructLayout({"mask": p.head_dim, "weighs": p.head_dim})
        m.submodules.unions = unions = Memory(MemoryShape(1 + p.chunks, 2 * p.head_dim))
        so_far = Signal(union)
        known = data.View(union, unions.read_data)
        joins = vector.unites & ~vector.opens
        place = Mux(vector.dimensions, p.chunks, vector.chunk)
        m.d.comb += [
            so_far.mask.eq(mask | Mux(joins, known.mask, 0)),
            so_far.weighs.eq(row.weighs | Mux(joins, known.weighs, 0)),
            unions.read_en.eq(there & vector.unites),
            unions.read_addr.eq(place),
            unions.write_en.eq(merges & vector.unites),
            unions.write_addr.eq(place),
            unions.write_data.eq(so_far.as_value()),
        ]
        return so_far.mask, so_far.weighs

    def _send(self, m, result, dimensions, offered, sent, lists):
        """Offer a selection to its stream, and to the listing beside it; whether that works."""
        p = self.parameters
        if not p.index_lanes:
            m.d.comb += [
                self.o_k.valid.eq(offered & dimensions),
                self.o_v.valid.eq(offered & ~dimensions),
                sent.eq(offered & Mux(dimensions, self.o_k.ready, self.o_v.ready)),
            ]
            return
        shared = data.StructLayout({name: result.shape()[name].shape for name in _SHARED} | {
            "dimensions": 1
        })
        m.submodules.indices = indices = IndexStream(
            width=p.head_dim, lanes=p.index_lanes, context=shared
        )
        given, listed, gives, passes = (Signal(name=n) for n in
                                        ("given", "listed", "gives", "passes"))
        m.d.comb += [
            self.o_k.valid.eq(offered & dimensions & ~given),
            self.o_v.valid.eq(offered & ~dimensions & ~given),
            indices.i.valid.eq(offered & ~listed & self.index_enable),
            indices.i.payload.mask.eq(result.mask),
            indices.i.payload.context.dimensions.eq(dimensions),
            gives.eq(given | Mux(dimensions, self.o_k.ready, self.o_v.ready)),
            passes.eq(listed | ~self.index_enable | indices.i.ready),
            sent.eq(offered & gives & passes),
            lists.eq(indices.o.valid),
        ]
        with m.If(offered):
            m.d.sync += [given.eq(gives & ~passes), listed.eq(passes & ~gives)]

        listing = indices.o.payload
        of_k = listing.context.dimensions
        m.d.comb += [
            self.o_k_index.valid.eq(indices.o.valid & of_k),
            self.o_v_index.valid.eq(indices.o.valid & ~of_k),
            indices.o.ready.eq(Mux(of_k, self.o_k_index.ready, self.o_v_index.ready)),
        ]
        m.d.comb += [indices.i.payload.context[name].eq(result[name]) for name in _SHARED]
        for beat in (self.o_k_index.payload, self.o_v_index.payload):
            m.d.comb += [beat[name].eq(listing.context[name]) for name in _SHARED]
            m.d.comb += [beat[name].eq(listing[name]) for name in ("indices", "count", "end")]
