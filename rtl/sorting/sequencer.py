"""Sequencer of the selection: runs the programs of several vectors at once on one sorter."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from golden.parameters import SelectionParameters
from rtl.memory import Memory, MemoryShape
from rtl.sorting.entry import Mode, group_layout
from rtl.sorting.microcode import rows_of, word_layout
from rtl.sorting.selection_contexts import Contexts
from rtl.sorting.selection_input import job_layout
from rtl.sorting.selection_loader import Loader
from rtl.sorting.selection_masks import SelectionMasks
from rtl.sorting.sort_key import EMPTY

__all__ = ["Sequencer", "tag_layout"]


def tag_layout(parameters: SelectionParameters) -> data.StructLayout:
    """Tag of an invocation: whose it is, and its microcode word."""
    return data.StructLayout({
        "context": range(max(2, parameters.vectors_in_flight)),
        "word": word_layout(parameters.groups),
    })


class Sequencer(wiring.Component):
    """Selects the highest entries of vectors with invocations of a sorter that stands outside.

    Each job is followed by its groups on ``i``. Entry ``lane`` of group ``g`` has index
    ``g * ways + lane``. One mask per job leaves on ``o``, in the order of the jobs: the
    ``full * ways + rest`` highest entries, or all that are not empty if those are fewer.

    The sorter must answer in order, and rank ``upper`` where ``b`` is empty; it may take and give
    at any pace. Its answers are always taken at once.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    i_job : stream of :func:`rtl.sorting.selection_input.job_layout`
        ``full * ways + rest`` must be neither 0 nor as many as the entries of the groups.
    i : stream of ways sort keys
    o : stream of head_dim bits
    o_ris, i_ris : stream
        To ``i_sort`` and from ``o_sort`` of a :class:`rtl.sorting.ris.Ris` with the parameters
        :attr:`ris`.
    """

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        tag = Shape.cast(tag_layout(p)).width
        group = group_layout(p.ways, p.key_width, p.ris().index_width)
        invocation = data.StructLayout({"mode": Mode, "a": group, "b": group, "tag": tag})
        halves = data.StructLayout({"upper": group, "lower": group, "tag": tag})
        super().__init__({
            "i_job": In(stream.Signature(job_layout(p))),
            "i": In(stream.Signature(data.ArrayLayout(p.key_width, p.ways))),
            "o": Out(stream.Signature(p.head_dim)),
            "o_ris": Out(stream.Signature(invocation)),
            "i_ris": In(stream.Signature(halves)),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.contexts = contexts = Contexts(p)
        m.submodules.loader = loader = Loader(p)
        m.submodules.masks = masks = SelectionMasks(p)
        row_bits = ceil_log2(rows_of(p.groups))
        group = self.o_ris.payload.a.shape()
        shape = MemoryShape(p.vectors_in_flight << row_bits, Shape.cast(group).width)
        banks = [Memory(shape), Memory(shape)]
        m.submodules.bank_0, m.submodules.bank_1 = banks

        start = Signal()
        m.d.comb += [
            start.eq(self.i_job.valid & self.i_job.ready),
            self.i_job.ready.eq(contexts.i_job.ready & loader.idle),
            contexts.i_job.valid.eq(self.i_job.valid & loader.idle),
            contexts.i_job.payload.eq(self.i_job.payload),
            loader.start.eq(start),
            loader.context.eq(contexts.tail),
            loader.groups.eq(self.i_job.payload.groups),
            masks.start.eq(start),
            masks.start_context.eq(contexts.tail),
        ]
        wiring.connect(m, wiring.flipped(self.i), loader.i)
        self._issue(m, contexts, loader, banks)
        self._write_back(m, contexts, loader, masks, banks)

        m.d.comb += [
            contexts.finish.eq(masks.finish),
            contexts.finish_context.eq(masks.finish_context),
            contexts.retire.eq(self.o.valid & self.o.ready),
            masks.head.eq(contexts.head),
            self.o.valid.eq(contexts.done),
            self.o.payload.eq(masks.mask),
        ]

        return m

    def _issue(self, m, contexts, loader, banks):
        """Read the operands, and offer them to the sorter in the next clock."""
        issue = contexts.o_issue.payload
        valid = Signal()
        issued = Signal(issue.shape(), reset_less=True)
        word = issued.word
        issues, leaves = Signal(), Signal()

        m.d.comb += [
            contexts.pair.eq(loader.pair),
            contexts.o_issue.ready.eq(~valid | self.o_ris.ready),
            issues.eq(contexts.o_issue.valid & contexts.o_issue.ready),
            leaves.eq(valid & self.o_ris.ready),
            loader.take.eq(issues & issue.word.arrives),
        ]
        for bank, memory in enumerate(banks):
            m.d.comb += [
                memory.read_en.eq(issues & ~issue.word.arrives & ~(issue.word.ranks & bank)),
                memory.read_addr.eq(Cat(issue.word.rows[bank], issue.context)),
            ]
        with m.If(contexts.o_issue.ready):
            m.d.sync += valid.eq(contexts.o_issue.valid)
        with m.If(issues):
            m.d.sync += issued.eq(issue)

        request = self.o_ris.payload
        arriving = [self._entries(loader.first, loader.row, 0)]
        arriving.append(self._entries(loader.second, loader.row, 1))
        nothing = self._nothing()
        m.d.comb += [
            self.o_ris.valid.eq(valid),
            request.mode.eq(Mux(issued.chunk_sort, Mode.CHUNK_SORT, Mode.GLOBAL_SORT)),
            request.tag.eq(Cat(issued.context, word)),
            Value.cast(request.a).eq(Mux(word.arrives, arriving[0], banks[0].read_data)),
            Value.cast(request.b).eq(
                Mux(word.arrives, arriving[1], Mux(word.ranks, nothing, banks[1].read_data))
            ),
        ]
        self._leaves = leaves & word.arrives

    def _entries(self, keys, row, odd):
        """Group of the input with its indices."""
        index_width = self.parameters.ris().index_width
        lane_bits = ceil_log2(self.parameters.ways)
        entries = []
        for lane, key in enumerate(keys):
            index = Cat(Const(lane, lane_bits), Const(odd, 1), row)
            entries.append(Cat(key, Cat(index, Const(0, index_width))[:index_width]))
        return Cat(entries)

    def _nothing(self):
        p = self.parameters
        index_width = p.ris().index_width
        entry = Cat(Const(EMPTY, p.key_width), Const(-1, signed(index_width)))
        return Cat([entry] * p.ways)

    def _write_back(self, m, contexts, loader, masks, banks):
        """Results go to memory, to the mask, or nowhere; an odd last group waits for a gap."""
        result = self.i_ris.payload
        tag = data.View(tag_layout(self.parameters), result.tag)
        word = tag.word
        stored = [
            Mux(word.swap, word.stores, ~word.selects),
            Mux(word.swap, ~word.selects, word.stores),
        ]
        values = [
            Mux(word.swap, result.lower.as_value(), result.upper.as_value()),
            Mux(word.swap, result.upper.as_value(), result.lower.as_value()),
        ]
        alone = Signal()
        for bank, memory in enumerate(banks):
            stores = Signal(name=f"stores_{bank}")
            place = contexts.stored[bank]
            m.d.comb += [
                stores.eq(self.i_ris.valid & stored[bank]),
                place.context.eq(tag.context),
                place.row.eq(word.rows[bank]),
                contexts.stored_en[bank].eq(stores),
                memory.write_en.eq(stores),
                memory.write_data.eq(values[bank]),
                memory.write_addr.eq(Cat(place.row, place.context)),
            ]
            if bank == 0:
                m.d.comb += alone.eq(loader.alone & ~stores)
                with m.If(~stores):
                    m.d.comb += [
                        place.context.eq(loader.first_context),
                        place.row.eq(loader.row),
                        contexts.stored_en[0].eq(alone),
                        memory.write_en.eq(alone),
                        memory.write_data.eq(self._entries(loader.first, loader.row, 0)),
                    ]
        m.d.comb += loader.release.eq(alone | self._leaves)

        selected = masks.selected
        m.d.comb += [
            self.i_ris.ready.eq(1),
            masks.en.eq(self.i_ris.valid & word.selects),
            contexts.rest_context.eq(tag.context),
            selected.context.eq(tag.context),
            selected.last.eq(word.last),
        ]
        for lane, entry in enumerate(result.upper):
            # A boundary group is never wanted whole.
            some = lane < contexts.rest if lane < self.parameters.ways - 1 else Const(0)
            m.d.comb += [
                selected.enable[lane].eq((entry.key != EMPTY) & (~word.ranks | some)),
                selected.indices[lane].eq(entry.index),
            ]
