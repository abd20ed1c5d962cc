# amaranth: UnusedElaboratable=no
"""Memories as macros: their area, and what the tools must be told of them."""

import dataclasses
import math
import re

from amaranth.hdl import Shape
from amaranth.lib import wiring

from rtl.memory import Memory, MemoryShape
from synth import liberty
from synth.pdk import MemoryFigures, Pdk

__all__ = ["Macro", "area", "available", "declaration", "timing_model"]

_THRESHOLDS = "".join(
    f"  {place}_{edge} : {percent};\n"
    for place, percent in (
        ("input_threshold_pct", 50),
        ("output_threshold_pct", 50),
        ("slew_lower_threshold_pct", 30),
        ("slew_upper_threshold_pct", 70),
    )
    for edge in ("rise", "fall")
)


@dataclasses.dataclass(frozen=True)
class Macro:
    """A memory macro that a PDK offers; area in µm²."""

    name: str
    depth: int
    width: int
    area: float


def available(pdk: Pdk) -> list[Macro]:
    """Macros of a PDK, read from their liberty files."""
    macros = []
    if pdk.memory is None:
        return macros
    for path in pdk.macro_files():
        for cell in liberty.read(path).cells.values():
            if match := re.fullmatch(pdk.memory.name, cell.name):
                depth, width = int(match["depth"]), int(match["width"])
                macros.append(Macro(cell.name, depth, width, cell.area))
    return macros


def area(shape: MemoryShape, macros: list[Macro], figures: MemoryFigures) -> tuple[float, str]:
    """Area of a memory in µm², and what it is made of.

    With macros it is the smallest tiling by copies of one macro, whose ports are not compared
    with the memory's; without, the bits times the PDK's figure.
    """
    if not macros:
        made_of = f"{figures.um2_per_bit:g} um2 per bit"
        return shape.depth * shape.width * figures.um2_per_bit, made_of
    count, macro = min(
        ((_copies(shape, macro), macro) for macro in macros),
        key=lambda choice: (choice[0] * choice[1].area, choice[1].name),
    )
    return count * macro.area, f"{count} x {macro.name}"


def _copies(shape: MemoryShape, macro: Macro) -> int:
    return math.ceil(shape.depth / macro.depth) * math.ceil(shape.width / macro.width)


def _ports(shape: MemoryShape) -> list[tuple[str, str, int]]:
    """Name, direction and width of each port of the instance that stands for a memory."""
    ports = [("i_clk", "input", 1)]
    for path, member, _ in (signature := Memory(shape).signature).flatten(signature.create()):
        flows_in = member.flow == wiring.In
        name = f"{'i' if flows_in else 'o'}_{path[0]}"
        ports.append((name, "input" if flows_in else "output", Shape.cast(member.shape).width))
    if shape.sideband:
        ports.append(("i_sideband", "input", shape.sideband))
    return ports


def declaration(shape: MemoryShape) -> str:
    """Verilog black box of the module that stands for a memory."""
    ports = ", ".join(f"{way} [{width - 1}:0] {name}" for name, way, width in _ports(shape))
    return f"(* blackbox *) module {shape.macro}({ports}); endmodule\n"


def timing_model(shapes: list[MemoryShape], figures: MemoryFigures) -> str:
    """Liberty file of the modules that stand for memories, times in ns, load-independent."""
    cells = "".join(_cell(shape, figures) for shape in shapes)
    return (
        "library (kvsmith_memories) {\n"
        "  delay_model : table_lookup;\n"
        '  time_unit : "1ns";\n  voltage_unit : "1V";\n  current_unit : "1mA";\n'
        '  pulling_resistance_unit : "1kohm";\n  capacitive_load_unit (1, ff);\n'
        f"{_THRESHOLDS}{_types(shapes)}{cells}}}\n"
    )


def _types(shapes: list[MemoryShape]) -> str:
    widths = sorted({width for shape in shapes for *_, width in _ports(shape)})
    return "".join(
        f"  type (bus_{width}) {{ base_type : array; data_type : bit; bit_width : {width}; "
        f"bit_from : {width - 1}; bit_to : 0; downto : true; }}\n"
        for width in widths
    )


def _cell(shape: MemoryShape, figures: MemoryFigures) -> str:
    delay, setup = figures.access_ps / 1000, figures.setup_ps / 1000
    pins = []
    for name, direction, width in _ports(shape):
        if name == "i_clk":
            clock = "direction : input; clock : true; capacitance : 5;"
            pins.append(f"    pin ({name}) {{ {clock} }}\n")
            continue
        if direction == "output":
            arcs = "timing_type : rising_edge; " + "".join(
                f'{edge} (scalar) {{ values ("{value:g}"); }} '
                for edge, value in (
                    ("cell_rise", delay), ("cell_fall", delay),
                    ("rise_transition", 0.02), ("fall_transition", 0.02),
                )
            )  # fmt: skip
        else:
            arcs = "timing_type : setup_rising; " + "".join(
                f'{edge}_constraint (scalar) {{ values ("{setup:g}"); }} '
                for edge in ("rise", "fall")
            )
        capacitance = "" if direction == "output" else "capacitance : 2; "
        pins.append(
            f"    bus ({name}) {{ bus_type : bus_{width}; direction : {direction}; {capacitance}"
            f'timing () {{ related_pin : "i_clk"; {arcs}}} }}\n'
        )
    return f"  cell ({shape.macro}) {{\n{''.join(pins)}  }}\n"
