"""What netlists hold: mapped cells, areas by sub-block, and the names of registers."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from synth.liberty import Cell
from synth.process import ToolError

__all__ = ["Contents", "Names", "SubBlock", "contents", "memory_bits", "names", "sub_blocks"]

#: Mark that the flow puts on the wires of registers.
REGISTER = "kvsmith_register"


@dataclasses.dataclass(frozen=True)
class Contents:
    """Mapped cells of a netlist; area in µm², memory macros apart."""

    area: float
    flops: int
    latches: int
    clock_gates: int
    gates: int


@dataclasses.dataclass(frozen=True)
class SubBlock:
    """A module instance, with all that is below it; ``path`` is empty for the block itself."""

    path: str
    area: float
    flops: int


def _statistics(path: Path) -> dict[str, Any]:
    text = path.read_text()
    return json.loads(text[text.index("{") :])


def memory_bits(text: str) -> int:
    """Count the bits of inferred memory in a design's RTLIL."""
    memories = re.findall(r"^\s*memory (?:width (\d+) )?(?:size (\d+) )?", text, re.MULTILINE)
    return sum(int(width or 1) * int(size or 1) for width, size in memories)


def _tally(types: dict[str, int], cells: dict[str, Cell], macros: set[str]) -> Contents:
    unmapped = sorted(set(types) - set(cells) - macros)
    if unmapped:
        raise ToolError(
            f"The library maps the block incompletely: no cell for {', '.join(unmapped)}; "
            "give all liberty files of the PDK"
        )
    kinds = Counter()
    for name, count in types.items():
        kinds[cells[name].kind if name in cells else "macro"] += count
    return Contents(
        area=sum(cells[name].area * count for name, count in types.items() if name in cells),
        flops=kinds["flop"],
        latches=kinds["latch"],
        clock_gates=kinds["clock_gate"],
        gates=kinds["gate"],
    )


def contents(path: Path, top: str, cells: dict[str, Cell], macros: set[str]) -> Contents:
    """Contents of a flat mapped netlist, from its statistics.

    Raises
    ------
    ToolError
        If a cell is neither in the library nor a memory macro.
    """
    modules = _statistics(path)["modules"]
    return _tally(modules[f"\\{top}"]["num_cells_by_type"], cells, macros)


def sub_blocks(path: Path, top: str, cells: dict[str, Cell], macros: set[str]) -> list[SubBlock]:
    """Every module instance of a hierarchical mapped netlist, outermost first.

    Instance paths come from the modules' names: each instance is a module of its own, named by its
    path.

    Raises
    ------
    ToolError
        As for :func:`contents`.
    """
    modules = {
        name.removeprefix("\\"): module["num_cells_by_type"]
        for name, module in _statistics(path)["modules"].items()
    }
    rows = []

    def visit(name: str) -> tuple[float, int]:
        row = len(rows)
        rows.append(None)
        own = {kind: count for kind, count in modules[name].items() if kind not in modules}
        tally = _tally(own, cells, macros)
        area, flops = tally.area, tally.flops
        for kind in modules[name]:
            if kind in modules and kind not in macros:
                below = visit(kind)
                area, flops = area + below[0], flops + below[1]
        rows[row] = SubBlock(name.removeprefix(top).removeprefix("."), area, flops)
        return area, flops

    visit(top)
    return rows


class Names:
    """Names in terms of the block for pins of its flat netlist.

    Parameters
    ----------
    module : dict
        The flat module before its registers were mapped, as in Yosys's JSON.
    """

    def __init__(self, module: dict[str, Any]):
        self._ports = module["ports"]
        best = _bit_names(module["netnames"])
        self._registers, clocked = {}, {}
        for name, cell in module["cells"].items():
            pins = cell["connections"]
            if re.fullmatch(r"\$_(SDFF|DFF|SDFFE|DFFE|SDFFCE|ALDFF|ADFF)\w*_", cell["type"]):
                self._registers[name] = best.get(pins["Q"][0], name)
                clocked.setdefault(pins["C"][0], self._registers[name])
        # What is left are the nets of clocks that come from inside: clock gates drive them.
        for port in self._ports.values():
            for bit in port["bits"]:
                clocked.pop(bit, None)
        self._gates = {}
        for name, cell in module["cells"].items():
            for bits in cell["connections"].values():
                if name not in self._registers and bits and bits[0] in clocked:
                    self._gates[name] = re.sub(r"\[\d+\]$", "", clocked[bits[0]])

    @property
    def ports(self) -> set[str]:
        """Names of the block's ports."""
        return set(self._ports)

    def pin(self, pin: str) -> str:
        """Name of a start or end of a path: a register, a port, or a macro's pin."""
        cell, _, leaf = pin.rpartition("/")
        if not cell:
            port = re.sub(r"\[\d+\]$", "", pin)
            return f"{self._ports[port]['direction']} {pin}"
        if cell in self._registers:
            return self._registers[cell]
        if cell in self._gates:
            return f"clock gate of {self._gates[cell]}"
        return f"{cell}.{leaf}"


def _bit_names(netnames: dict[str, Any]) -> dict[int, str]:
    """Best public name of each bit: a register's own before an alias, a short one before a long."""
    best: dict[int, tuple] = {}
    for name, net in netnames.items():
        if net["hide_name"]:
            continue
        rank = (REGISTER not in net["attributes"], "$" in name, len(name), name)
        for index, bit in enumerate(net["bits"]):
            if bit not in best or rank < best[bit][0]:
                best[bit] = (rank, f"{name}[{index}]" if len(net["bits"]) > 1 else name)
    return {bit: name for bit, (_, name) in best.items()}


def names(path: Path, top: str) -> Names:
    """Names of a flat, unmapped netlist in Yosys's JSON."""
    return Names(json.loads(path.read_text())["modules"][top])
