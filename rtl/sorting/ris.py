"""Reconfigurable importance sorter (HiKV, IV-B)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import RisParameters
from rtl.pipeline import advance, delay
from rtl.sorting import networks
from rtl.sorting.compare_exchange import Network
from rtl.sorting.entry import Mode, group_layout

__all__ = ["Ris"]


class Ris(wiring.Component):
    """Splits two groups into their highest and lowest entries, and picks minima and maxima.

    A transfer on ``i_sort`` merges groups ``a`` and ``b``: ``upper`` gets the ``ways`` highest of
    both, ``lower`` the others, in unspecified order inside. If all entries of ``b`` are empty, with
    one index, ``upper`` is ``a`` in descending order, element 0 highest. In the modes
    ``GLOBAL_SORT`` and ``CHUNK_SORT`` the result leaves on ``o_sort``. In ``HEAPIFY_UP`` both
    groups are then picked and leave on ``o_pick``: ``upper`` is meant for the child, ``lower`` for
    the parent. ``HEAPIFY_DOWN`` has no meaning on this port: it acts as ``GLOBAL_SORT`` and raises
    ``illegal_mode``.

    A transfer on ``i_pick`` picks (``HEAPIFY_DOWN``): ``upper`` has the entries of ``a``, ``lower``
    those of ``b``. Of a picked group element 0 is the lowest entry, the last one the highest, the
    rest in any order.

    Of equal keys the lower index ranks higher; without ``index_tiebreak`` either may. No entry is
    ever lost or doubled, reserved keys and entries that are equal in full included.

    Each port takes one transfer per clock and answers in order. If the merger's result and
    ``i_pick`` want the picker in one clock, ``i_pick`` waits (unless it stands on ``o_pick``
    already, which happens without registers in the picker).

    Parameters
    ----------
    parameters : RisParameters

    Members
    -------
    i_sort : ``In(stream.Signature(StructLayout({"mode": Mode, "a": group, "b": group, "tag"})))``
        Always ready if not ``stall``. ``tag`` only if ``tag_width`` is not 0, here and below.
    o_sort : ``Out(stream.Signature(StructLayout({"upper": group, "lower": group, "tag"})))``
        Must always be ready if not ``stall``.
    i_pick : ``In(stream.Signature(StructLayout({"a": group, "b": group, "tag"})))``
    o_pick : ``Out(stream.Signature(StructLayout({"upper": group, "lower": group, "tag"})))``
        Must always be ready if not ``stall``.
    illegal_mode : ``Out(1)``
        Sticky: a transfer on ``i_sort`` had the mode ``HEAPIFY_DOWN``.
    clear : ``In(1)``
        Takes ``illegal_mode`` back; a transfer that sets it in the same clock wins.
    """

    meanings = {
        "i_sort": "two groups to sort and merge, with the mode",
        "o_sort": "highest and lowest entries of both groups, as sets",
        "i_pick": "two groups, each to be picked by itself (HEAPIFY_DOWN)",
        "o_pick": "groups with the minimum first and the maximum last",
        "illegal_mode": "sticky: HEAPIFY_DOWN on the sort port, which sorted instead",
        "clear": "takes the sticky flag back",
    }

    def __init__(self, parameters: RisParameters):
        self.parameters = parameters
        group = group_layout(parameters.ways, parameters.key_width, parameters.index_width)
        tag = {"tag": parameters.tag_width} if parameters.tag_width else {}
        pair = data.StructLayout({"a": group, "b": group} | tag)
        halves = data.StructLayout({"upper": group, "lower": group} | tag)
        invocation = data.StructLayout({"mode": Mode, "a": group, "b": group} | tag)
        flows = not parameters.stall
        super().__init__({
            "i_sort": In(stream.Signature(invocation, always_ready=flows)),
            "o_sort": Out(stream.Signature(halves, always_ready=flows)),
            "i_pick": In(stream.Signature(pair)),
            "o_pick": Out(stream.Signature(halves, always_ready=flows)),
            "illegal_mode": Out(1),
            "clear": In(1),
        })

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from port to port when nothing stalls."""
        sort, pick = len(self._sort_registers), len(self._pick_registers)
        return {
            "i_sort to o_sort": sort,
            "i_sort to o_pick": sort + pick,
            "i_pick to o_pick": pick,
        }

    @property
    def _sort_registers(self) -> tuple[int, ...]:
        last = self.parameters.merger_stage
        return tuple(number for number in self.parameters.registers if number <= last)

    @property
    def _pick_registers(self) -> tuple[int, ...]:
        return self.parameters.registers[len(self._sort_registers):]

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        places = 2 * p.ways
        sorters = networks.twice(networks.sorter(p.network, p.ways), p.ways)
        pickers = networks.twice(networks.picker(p.ways), p.ways)
        m.submodules.sorter = sorter = Network(p, sorters, first=1, places=places)
        m.submodules.merger = merger = Network(
            p, networks.merger(p.ways), first=p.merger_stage, places=places
        )
        m.submodules.picker = picker = Network(
            p, pickers, first=p.merger_stage + 1, places=places
        )
        sort, pick = self.i_sort.payload, self.i_pick.payload
        merged_ready = Signal()
        ascends = Signal()

        merged, sort_ready, sort_loads = advance(
            m, self._sort_registers, self.i_sort.valid, merged_ready
        )
        picked, pick_ready, pick_loads = advance(
            m, self._pick_registers, ascends | self.i_pick.valid, self.o_pick.ready
        )
        sort_enables = sort_loads if p.stall else [None] * len(sort_loads)
        pick_enables = pick_loads if p.stall else [None] * len(pick_loads)
        heapify = delay(m, sort.mode == Mode.HEAPIFY_UP, sort_enables, "heapify")
        first = self._merger_first(m, ascends)

        m.d.comb += [
            ascends.eq(merged & heapify & first),
            merged_ready.eq(Mux(heapify, pick_ready & first, self.o_sort.ready)),
            self.i_pick.ready.eq(pick_ready & ~ascends),
            self.o_sort.valid.eq(merged & ~heapify),
            self.o_pick.valid.eq(picked),
            Value.cast(sorter.i).eq(Cat(sort.a, sort.b)),
            merger.i.eq(sorter.o),
            # A sort leaves the picker's input alone, so that nothing toggles in there.
            Value.cast(picker.i).eq(Mux(ascends, merger.o, Cat(pick.a, pick.b))),
            Cat(self.o_sort.payload.upper, self.o_sort.payload.lower).eq(merger.o),
            Cat(self.o_pick.payload.upper, self.o_pick.payload.lower).eq(picker.o),
        ]
        if p.tag_width:
            sort_tag = delay(m, sort.tag, sort_enables, "sort_tag")
            tag = Mux(ascends, sort_tag, pick.tag)
            m.d.comb += [
                self.o_sort.payload.tag.eq(sort_tag),
                self.o_pick.payload.tag.eq(delay(m, tag, pick_enables, "pick_tag")),
            ]
        if p.stall:
            loads = dict(zip(p.registers, [*sort_loads, *pick_loads], strict=True))
            m.d.comb += self.i_sort.ready.eq(sort_ready)
            m.d.comb += [
                network.load.eq(Cat(loads[number] for number in network.registers))
                for network in (sorter, merger, picker) if network.registers
            ]

        with m.If(self.clear):
            m.d.sync += self.illegal_mode.eq(0)
        with m.If(self.i_sort.valid & self.i_sort.ready & (sort.mode == Mode.HEAPIFY_DOWN)):
            m.d.sync += self.illegal_mode.eq(1)

        return m

    def _merger_first(self, m: Module, ascends) -> Value:
        """Whether the merger's result may have the picker.

        Always, if a register takes the picker's input. Without any, a pick that has been offered on
        ``o_pick`` must stay there until it is taken.
        """
        if self._pick_registers or not self.parameters.stall:
            return C(1)
        offered = Signal()
        m.d.sync += offered.eq(self.o_pick.valid & ~self.o_pick.ready & ~ascends)
        return ~offered
