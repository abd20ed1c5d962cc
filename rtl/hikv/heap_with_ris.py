"""A heap with a sorter of its own."""

from amaranth import *
from amaranth.lib import wiring

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap import Heap
from rtl.sorting.ris import Ris

__all__ = ["HeapWithRis"]


class HeapWithRis(wiring.Component):
    """:class:`rtl.hikv.heap.Heap` and the :class:`rtl.sorting.ris.Ris` that serves it alone.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i_replace, i_build, o_minimum, i_row, o_row, idle, parity_error, parity_base
        As there.
    """

    meanings = {name: text for name, text in Heap.meanings.items() if "ris" not in name}

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = parameters
        self.heap = Heap(parameters)
        self.ris = Ris(self.heap.ris)
        members = self.heap.signature.members
        super().__init__({name: members[name] for name in self.meanings})

    @property
    def latency(self) -> dict[str, int]:
        """Clocks when nothing stalls."""
        pick = self.ris.latency["i_pick to o_pick"]
        return {
            # With an even number the answer may meet a read of its own path.
            "i_replace to o_minimum": 4 + pick + (pick % 2 == 0),
            "i_replace to its last row written, less 2 per node of the path": 1 + pick,
        }

    def elaborate(self, platform):
        m = Module()
        m.submodules.heap = self.heap
        m.submodules.ris = self.ris
        wiring.connect(m, self.heap.o_ris_sort, self.ris.i_sort)
        wiring.connect(m, self.heap.o_ris_pick, self.ris.i_pick)
        wiring.connect(m, self.ris.o_pick, self.heap.i_ris_pick)
        # Nothing is sent here that would leave there.
        m.d.comb += self.ris.o_sort.ready.eq(1)

        for name in ("i_replace", "i_build", "o_minimum", "i_row", "o_row"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(self.heap, name))
        m.d.comb += [
            getattr(self, name).eq(getattr(self.heap, name))
            for name in ("idle", "parity_error", "parity_base")
        ]
        return m
