"""One sorter for the heap and the selection."""

import dataclasses

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters, RisParameters
from rtl.sorting.entry import Mode, group_layout
from rtl.sorting.ris import Ris
from rtl.sorting.selection import ris_parameters

__all__ = ["RisShare"]


def _streams(ris: RisParameters) -> tuple[data.StructLayout, data.StructLayout]:
    """Operands and results of an invocation of a sorter with these parameters."""
    group = group_layout(ris.ways, ris.key_width, ris.index_width)
    tag = {"tag": ris.tag_width} if ris.tag_width else {}
    operands = data.StructLayout({"a": group, "b": group} | tag)
    return operands, data.StructLayout({"upper": group, "lower": group} | tag)


class RisShare(wiring.Component):
    """A sorter with two users of its sort port, of different widths; the heap's goes first.

    Keys, indices and tags are extended by zeros. Results of ``HEAPIFY_UP`` and ``HEAPIFY_DOWN`` are
    the heap's, all others the selection's.

    Parameters
    ----------
    parameters : HikvSelectorParameters
    heap : RisParameters
        Sorter that the heap wants.

    Members
    -------
    i_select, o_select : stream
        Of a sorter as the selection wants it: ``i_sort`` and ``o_sort``.
    i_sort, i_pick, o_pick : stream
        Of a sorter as the heap wants it.
    invoked : ``Out(2)``
        Invocations that begin in this clock: on the sort port, on the pick port.
    """

    def __init__(self, parameters: HikvSelectorParameters, heap: RisParameters):
        self.parameters = parameters
        self.heap = heap
        select = self.select = ris_parameters(parameters.selection())
        self.ris = dataclasses.replace(
            heap,
            key_width=max(heap.key_width, select.key_width),
            index_width=max(heap.index_width, select.index_width),
            tag_width=max(heap.tag_width, select.tag_width),
        )
        operands, results = _streams(heap)
        wanted, selected = _streams(select)
        super().__init__({
            "i_select": In(stream.Signature(_with_mode(wanted))),
            "o_select": Out(stream.Signature(selected)),
            "i_sort": In(stream.Signature(_with_mode(operands))),
            "i_pick": In(stream.Signature(operands)),
            "o_pick": Out(stream.Signature(results)),
            "invoked": Out(2),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ris = ris = Ris(self.ris)
        heap = self.i_sort.valid
        request = ris.i_sort.payload

        with m.If(heap):
            _convert(m, self.i_sort.payload, request)
        with m.Else():
            _convert(m, self.i_select.payload, request)
        _convert(m, self.i_pick.payload, ris.i_pick.payload)
        _convert(m, ris.o_sort.payload, self.o_select.payload)
        _convert(m, ris.o_pick.payload, self.o_pick.payload)
        m.d.comb += [
            request.mode.eq(Mux(heap, self.i_sort.payload.mode, self.i_select.payload.mode)),
            ris.i_sort.valid.eq(heap | self.i_select.valid),
            self.i_sort.ready.eq(ris.i_sort.ready),
            self.i_select.ready.eq(ris.i_sort.ready & ~heap),
            ris.i_pick.valid.eq(self.i_pick.valid),
            self.i_pick.ready.eq(ris.i_pick.ready),
            self.o_select.valid.eq(ris.o_sort.valid),
            ris.o_sort.ready.eq(self.o_select.ready),
            self.o_pick.valid.eq(ris.o_pick.valid),
            ris.o_pick.ready.eq(self.o_pick.ready),
            self.invoked[0].eq(ris.i_sort.valid & ris.i_sort.ready),
            self.invoked[1].eq(ris.i_pick.valid & ris.i_pick.ready),
        ]

        return m


def _with_mode(operands: data.StructLayout) -> data.StructLayout:
    members = {name: field.shape for name, field in operands}
    return data.StructLayout({"mode": Mode} | members)


def _convert(m, source, target):
    """Extend, or cut, the entries of both groups and the tag."""
    names = {name for name, _ in source.shape()}
    for name, _ in target.shape():
        if name in ("a", "b", "upper", "lower"):
            for entry, other in zip(target[name], source[name], strict=True):
                m.d.comb += [entry.key.eq(other.key), entry.index.eq(other.index)]
        elif name == "tag" and "tag" in names:
            m.d.comb += target.tag.eq(source.tag)
