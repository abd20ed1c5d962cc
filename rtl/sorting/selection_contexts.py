"""Contexts of the selection sequencer: program counters, operands present, issue."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import SelectionParameters
from rtl.sorting.microcode import Microcode, rows_of, word_layout
from rtl.sorting.one_hot import choose, lowest
from rtl.sorting.selection_input import job_layout

__all__ = ["Contexts", "place_layout"]


def place_layout(parameters: SelectionParameters) -> data.StructLayout:
    """One row of a bank of memory."""
    return data.StructLayout({
        "row": range(rows_of(parameters.groups)),
        "context": range(max(2, parameters.vectors_in_flight)),
    })


class Contexts(wiring.Component):
    """Runs the programs of up to ``vectors_in_flight`` vectors, oldest first.

    Contexts are a ring: vectors start at its tail and retire at its head. Each program issues in
    order, an invocation as soon as its operands are in memory or stand at the input. The vector
    that loads goes before the others, and of these the older before the younger.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    i_job : stream of :func:`job_layout`
        Ready while a context is free.
    tail, head
        Context of the next vector to start, and of the oldest one.
    pair
        The groups that an ``arrives`` invocation wants are there.
    o_issue : stream of {``context``, ``word``, ``chunk_sort``}
        Valid depends on ``pair``, and changes with it.
    stored, stored_en
        Per bank: a result is written there.
    rest_context, rest
        Entries of the boundary group that a context wants.
    finish, finish_context
        All selections of that context are in its mask.
    done, retire
        The oldest vector is finished / makes room.
    """

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        context = range(max(2, p.vectors_in_flight))
        issue = data.StructLayout({
            "context": context, "word": word_layout(p.groups), "chunk_sort": 1
        })
        super().__init__({
            "i_job": In(stream.Signature(job_layout(p))),
            "tail": Out(context),
            "head": Out(context),
            "pair": In(1),
            "o_issue": Out(stream.Signature(issue)),
            "stored": In(data.ArrayLayout(place_layout(p), 2)),
            "stored_en": In(2),
            "rest_context": In(context),
            "rest": Out(range(p.ways)),
            "finish": In(1),
            "finish_context": In(context),
            "done": Out(1),
            "retire": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        count = p.vectors_in_flight
        code = Microcode(p.groups)
        word = word_layout(p.groups)
        busy, fetches, loaded, finished = (
            Signal(count, name=name) for name in ("busy", "fetches", "loaded", "finished")
        )
        counters = [
            Signal(range(max(2, len(code.words))), name=f"counter_{c}", reset_less=True)
            for c in range(count)
        ]
        words = [Signal(word, name=f"word_{c}", reset_less=True) for c in range(count)]
        present = [
            Signal(data.ArrayLayout(rows_of(p.groups), 2), name=f"present_{c}", reset_less=True)
            for c in range(count)
        ]
        rests = Signal(data.ArrayLayout(range(p.ways), max(2, count)), reset_less=True)
        chunk_sorts = Signal(count, reset_less=True)

        starts, issues = Signal(), Signal()
        start_at = self._start_address(m, code)
        fetched, fetch_word = self._fetch(m, code, fetches, counters)
        granted = self._grant(m, loaded, words, present)
        m.d.comb += [
            self.i_job.ready.eq(~busy.bit_select(self.tail, 1)),
            starts.eq(self.i_job.valid & self.i_job.ready),
            issues.eq(self.o_issue.valid & self.o_issue.ready),
            self.o_issue.payload.word.eq(choose(granted, words)),
            self.o_issue.payload.chunk_sort.eq((granted & chunk_sorts).any()),
            self.o_issue.payload.context.eq(choose(granted, range_values(count))),
            self.rest.eq(rests[self.rest_context]),
            self.done.eq((busy & finished).bit_select(self.head, 1)),
        ]

        with m.If(starts):
            m.d.sync += [
                rests[self.tail].eq(self.i_job.payload.rest),
                self.tail.eq(Mux(self.tail == count - 1, 0, self.tail + 1)),
            ]
        with m.If(self.retire):
            m.d.sync += self.head.eq(Mux(self.head == count - 1, 0, self.head + 1))
        for c in range(count):
            with m.If(fetched[c]):
                m.d.sync += [
                    words[c].eq(fetch_word),
                    counters[c].eq(counters[c] + 1),
                    fetches[c].eq(0),
                    loaded[c].eq(1),
                ]
            with m.If(issues & granted[c]):
                m.d.sync += [
                    loaded[c].eq(0),
                    fetches[c].eq(~words[c].last),
                ]
            for bank in range(2):
                with m.If(self.stored_en[bank] & (self.stored[bank].context == c)):
                    m.d.sync += present[c][bank].bit_select(self.stored[bank].row, 1).eq(1)
            with m.If(issues & granted[c] & ~words[c].arrives):
                self._consume(m, words[c], present[c])
            with m.If(self.finish & (self.finish_context == c)):
                m.d.sync += finished[c].eq(1)
            with m.If(self.retire & (self.head == c)):
                m.d.sync += busy[c].eq(0)
            with m.If(starts & (self.tail == c)):
                m.d.sync += [
                    busy[c].eq(1),
                    finished[c].eq(0),
                    fetches[c].eq(1),
                    counters[c].eq(start_at),
                    present[c].eq(0),
                    chunk_sorts[c].eq(self.i_job.payload.chunk_sort),
                ]

        return m

    def _start_address(self, m, code):
        job = self.i_job.payload
        address = Signal(range(max(2, len(code.words))))
        with m.Switch(Cat(job.rest != 0, job.full, job.groups)):
            for target, start in code.starts.items():
                width = len(job.full)
                with m.Case(target.boundary | target.full << 1 | target.groups << (width + 1)):
                    m.d.comb += address.eq(start)
        return address

    def _fetch(self, m, code, fetches, counters):
        """Which context gets its next word, and that word."""
        fetched, word = Signal(len(fetches)), Signal(word_layout(self.parameters.groups))
        address = Signal.like(counters[0])
        m.d.comb += [
            fetched.eq(lowest(fetches)),
            address.eq(choose(fetched, counters)),
        ]
        places = {}
        for place, value in enumerate(code.words):
            places.setdefault(value, []).append(place)
        with m.Switch(address):
            for value, addresses in places.items():
                with m.Case(*addresses):
                    m.d.comb += Value.cast(word).eq(value)
        return fetched, word

    def _grant(self, m, loaded, words, present):
        """Context that issues, one-hot: the one that loads, else the oldest that can.

        Loading comes first so that there are always enough vectors to fill the gaps of the older
        ones.
        """
        count = len(loaded)
        loads, can, older = Signal(count), Signal(count), Signal(count)
        granted = Signal(count)
        for c, word in enumerate(words):
            there = [present[c][bank].bit_select(word.rows[bank], 1) for bank in range(2)]
            m.d.comb += [
                loads[c].eq(loaded[c] & word.arrives & self.pair),
                can[c].eq(loaded[c] & ~word.arrives & there[0] & (there[1] | word.ranks)),
            ]
        m.d.comb += [
            older.eq(can & Cat(*(c >= self.head for c in range(count - 1)), Const(1, 1))),
            granted.eq(
                Mux(loads.any(), loads, Mux(older.any(), lowest(older), lowest(can)))
            ),
            self.o_issue.valid.eq((loads | can).any()),
        ]
        return granted

    def _consume(self, m, word, present):
        m.d.sync += present[0].bit_select(word.rows[0], 1).eq(0)
        with m.If(~word.ranks):
            m.d.sync += present[1].bit_select(word.rows[1], 1).eq(0)


def range_values(count: int) -> list[Const]:
    """Constants 0 .. count - 1 of one width."""
    return [Const(number, range(max(2, count))) for number in range(count)]
