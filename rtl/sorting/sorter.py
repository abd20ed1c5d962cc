"""Parallel sorter of a group of entries."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import SorterParameters
from rtl.pipeline import advance
from rtl.sorting import networks
from rtl.sorting.compare_exchange import Network
from rtl.sorting.entry import group_layout

__all__ = ["Sorter"]


class Sorter(wiring.Component):
    """Sorts a group of entries, one group per clock.

    A transfer on ``o`` holds the entries of the matching transfer on ``i`` in descending order:
    the highest key is element 0, of equal keys the lowest index comes first. Without
    ``index_tiebreak`` equal keys come in any order. Latency is ``latency`` clocks when nothing
    stalls, throughput one group per clock.

    Parameters
    ----------
    parameters : SorterParameters

    Members
    -------
    i : ``In(stream.Signature(group_layout(ways, key_width, index_width)))``
        Groups in any order of entries. Always ready if not ``stall``.
    o : ``Out(stream.Signature(group_layout(ways, key_width, index_width)))``
        The same groups, sorted. Must always be ready if not ``stall``.
    reserved : ``Out(1)``
        Sticky: a group with a reserved key (0, 1 or all ones) has left. It is sorted like others.
    clear : ``In(1)``
        Takes ``reserved`` back; a group that sets it in the same clock wins.
    """

    meanings = {
        "i": "groups to sort",
        "o": "the same groups in descending order, element 0 highest",
        "reserved": "sticky: a group held a reserved key (0, 1 or all ones)",
        "clear": "takes the sticky flag back",
    }

    def __init__(self, parameters: SorterParameters):
        self.parameters = parameters
        layout = group_layout(parameters.ways, parameters.key_width, parameters.index_width)
        signature = stream.Signature(layout, always_ready=not parameters.stall)
        super().__init__({
            "i": In(signature),
            "o": Out(signature),
            "reserved": Out(1),
            "clear": In(1),
        })

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from port to port when nothing stalls."""
        return {"i to o": len(self.parameters.registers)}

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        stages = networks.sorter(p.network, p.ways)
        m.submodules.network = network = Network(p, stages, first=1, places=p.ways)

        valid, ready, loads = advance(m, p.registers, self.i.valid, self.o.ready)
        m.d.comb += [
            network.i.eq(self.i.payload),
            self.o.payload.eq(network.o),
            self.o.valid.eq(valid),
        ]
        if p.stall:
            m.d.comb += self.i.ready.eq(ready)
            if loads:
                m.d.comb += network.load.eq(Cat(loads))

        # The output is in order, so that its two ends tell about all the keys.
        with m.If(self.clear):
            m.d.sync += self.reserved.eq(0)
        with m.If(valid & (network.o[0].key.all() | (network.o[p.ways - 1].key <= 1))):
            m.d.sync += self.reserved.eq(1)

        return m
