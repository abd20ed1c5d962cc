# amaranth: UnusedElaboratable=no
"""Name -> component and parameters of every block that can be generated."""

import dataclasses
import importlib
from typing import Any

from amaranth.lib import wiring

from golden import parameters as golden_parameters
from golden.parameters import Parameters

__all__ = ["BLOCKS", "Block", "block"]


@dataclasses.dataclass(frozen=True)
class Block:
    """A block: ``name`` is also its Verilog module, testbench, docs page and synthesis target.

    Parameters
    ----------
    name : str
    parameters : type of Parameters
    component : str
        ``module:class``, imported when first made, so that listing stays fast.
    summary : str
        One line for ``kvsmith list``.
    """

    name: str
    parameters: type[Parameters]
    component: str
    summary: str

    def make(self, parameters: Parameters | None = None) -> Any:
        """Component with the given (or the default) parameters; a :class:`wiring.Component`.

        It need not be elaborated: a bench wants its layouts only.
        """
        module, _, name = self.component.partition(":")
        factory: type[wiring.Component] = getattr(importlib.import_module(module), name)
        return factory(parameters or self.parameters())


BLOCKS = {
    entry.name: entry
    for entry in (
        Block("sorter", golden_parameters.SorterParameters, "rtl.sorting.sorter:Sorter",
              "sorts a group of (key, index) entries, one group per clock"),
        Block("ris", golden_parameters.RisParameters, "rtl.sorting.ris:Ris",
              "reconfigurable importance sorter: sort, merge and pick two groups per clock"),
        Block("selection", golden_parameters.SelectionParameters,
              "rtl.sorting.selection:Selection",
              "selects the highest entries of Q or of each chunk of P"),
        Block("scoreboard", golden_parameters.ScoreboardParameters,
              "rtl.hikv.scoreboard:Scoreboard",
              "both banks of HiKV's cache for many contexts, their scores and slots"),
        Block("hikv_selector", golden_parameters.HikvSelectorParameters,
              "rtl.hikv.hikv_selector:HikvSelector",
              "decides what stays in the caches of many heads, and what of it is read"),
        Block("tisg", golden_parameters.TisgParameters, "rtl.arithmetic.tisg:Tisg",
              "adds attention weights to importance scores"),
        Block("hikv_selector_axi", golden_parameters.HikvSelectorAxiParameters,
              "rtl.hikv.hikv_selector_axi:HikvSelectorAxi",
              "the selector with AXI4-Stream and AXI4-Lite ports, registers and interrupt"),
    )
}  # fmt: skip


def block(name: str) -> Block:
    """Block of that name.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    if name not in BLOCKS:
        raise ValueError(f"Unknown block {name!r}: known are {', '.join(BLOCKS)}")
    return BLOCKS[name]
