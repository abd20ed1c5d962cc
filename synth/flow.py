"""From a component to its figures: one Yosys run, one OpenSTA run per mapped netlist."""

import dataclasses
import importlib.metadata
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

from rtl.generate import top_ports
from rtl.memory import MemoryShape, black_boxes, recording
from synth import cache, macros, netlist, sta, yosys
from synth.netlist import Contents, Names
from synth.technology import Technology

__all__ = ["CLOCK_GATES", "SCRIPTS", "USUAL_SCRIPTS", "Options", "measure"]

CLOCK_GATES = ("none", "enable", "icg")

_SIZE = "topo; buffer -c; topo; upsize -D {D}; dnsize -D {D}; stime -p"
#: ABC scripts by name, {D} the delay target. None is Yosys's own, which the peers were measured
#: with: it turns prefix trees into ripple chains. `structure` and `choice` keep them, `choice`
#: with alternatives for each node; `fast` and `area` go further to one side.
SCRIPTS: dict[str, str | None] = {
    "default": None,
    "structure": f"strash; map -D {{D}}; {_SIZE}",
    "choice": f"strash; dch; map -D {{D}}; {_SIZE}",
    "fast": f"strash; dch -f; map -B 0.9 -D {{D}}; {_SIZE}",
    "area": f"strash; dch; amap; {_SIZE}",
}
#: Those that are tried when none is asked for.
USUAL_SCRIPTS = ("default", "choice", "fast")

#: The flow of the area figure and of every comparison.
_FIGURE = "default"
#: Bits of inferred memory that may become flip-flops.
_MEMORY_BITS = 4096
#: Below this a clock gate takes more area than the multiplexers that it saves.
_GATED_FLOPS = 3


@dataclasses.dataclass(frozen=True)
class Options:
    """How to measure.

    Parameters
    ----------
    scripts : tuple of str
        ABC scripts to try, names of :data:`SCRIPTS`.
    clock_mhz : float, optional
        Frequency to size gates for; unset: the PDK's delay target.
    clock_gate : {"none", "enable", "icg"}, optional
        ``icg`` puts clock gates before enabled registers without reset, ``enable`` multiplexers,
        ``none`` is for blocks without any. Unset: ``icg`` where the PDK has a clock gate, else
        ``enable``.
    timing : bool
        Run OpenSTA, if there is one.
    split : bool
        Map the block once more with its hierarchy, for the area by sub-block.

    Raises
    ------
    ValueError
        If a value is not allowed.
    """

    scripts: tuple[str, ...] = USUAL_SCRIPTS
    clock_mhz: float | None = None
    clock_gate: str | None = None
    timing: bool = True
    split: bool = True

    def __post_init__(self):
        for script in self.scripts:
            if script not in SCRIPTS:
                raise ValueError(f"Script must be one of {', '.join(SCRIPTS)}, not {script!r}")
        if self.clock_gate not in (None, *CLOCK_GATES):
            allowed = ", ".join(CLOCK_GATES)
            raise ValueError(f"Clock gate must be one of {allowed}, not {self.clock_gate!r}")
        if self.clock_mhz is not None and not 1 <= self.clock_mhz <= 100_000:
            raise ValueError(f"Clock MHz must be from 1 to 100000, not {self.clock_mhz:g}")


@dataclasses.dataclass(frozen=True)
class _Design:
    name: str
    text: str
    memories: list[MemoryShape]

    @property
    def macros(self) -> dict[str, MemoryShape]:
        return {shape.macro: shape for shape in self.memories}


def measure(
    component: Any,
    technology: Technology,
    options: Options | None = None,
    *,
    name: str,
    store: Path | None = None,
) -> dict[str, Any]:
    """Area, delay, frequency and critical path of a component.

    Memories made by :class:`rtl.memory.Memory` are macros: their area is reported apart.

    Parameters
    ----------
    component : wiring.Component
        Its parameters, if it has an attribute of that name, are in the report.
    technology : Technology
        Cells and conditions.
    options : Options, optional
        Unset: all the defaults.
    name : str
        Of the block, in the report.
    store : Path, optional
        Folder that keeps figures by the hash of all that they depend on; unset: none are kept.

    Returns
    -------
    dict
        As `kvsmith synth --json` prints it; what was not measured is None.

    Raises
    ------
    ValueError
        If the options do not fit the block, the block cannot be mapped onto the library, or a tool
        fails; the message says what to do.
    """
    options = options or Options()
    _check_gating(component, technology, options, name)
    design = _convert(component, name)
    script = _script(design, technology, options)
    tools = _tools(options)
    key = cache.key(design.text, script, technology.digest, repr(options), repr(tools))
    if store and (kept := cache.load(store, key)):
        return kept
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kvsmith-") as folder:
        figures = _run(design, script, technology, options, tools, Path(folder))
    parameters = getattr(component, "parameters", None)
    result = {
        "block": name,
        "parameters": parameters.as_dict() if parameters else None,
        "pdk": technology.pdk.name,
        **figures,
        "power_mw": None,
        "clock_gate": _gating(technology, options),
        "clock_mhz": options.clock_mhz,
        "tools": tools,
        "run_time_s": round(time.monotonic() - started, 1),
        "inputs": key,
    }
    if store:
        cache.save(store, key, result)
    return result


def _gating(technology: Technology, options: Options) -> str:
    return options.clock_gate or ("icg" if technology.pdk.clock_gate else "enable")


def _check_gating(component: Any, technology: Technology, options: Options, name: str) -> None:
    parameters = getattr(component, "parameters", None)
    if options.clock_gate == "none" and getattr(parameters, "stall", parameters is not None):
        raise ValueError(
            f"Clock gate none needs a block that cannot stall, which {name} with these parameters "
            "is not: set stall=false where the block has it, or use enable or icg"
        )
    if options.clock_gate == "icg" and technology.pdk.clock_gate is None:
        raise ValueError(f"PDK {technology.pdk.name} names no clock gate: use enable")


def _tools(options: Options) -> dict[str, str | None]:
    return {
        "amaranth": importlib.metadata.version("amaranth"),
        "yosys": yosys.version(),
        "opensta": sta.version() if options.timing else None,
    }


def _convert(component: Any, name: str) -> _Design:
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ValueError(f"Name must be letters, digits and underscores, not {name!r}")
    with black_boxes(), recording() as memories:
        text = rtlil.convert(
            component, name=name, ports=top_ports(component), emit_src=False
        )
    bits = netlist.memory_bits(text)
    if bits > _MEMORY_BITS:
        raise ValueError(
            f"{name} has {bits} bits of memory that would become flip-flops, above "
            f"{_MEMORY_BITS}: make them with rtl.memory.Memory, which is mapped onto macros"
        )
    return _Design(name, text, memories)


def _script(design: _Design, technology: Technology, options: Options) -> str:
    pdk = technology.pdk
    libraries = " ".join(f"-liberty cells_{i}.lib" for i in range(len(technology.libraries)))
    dont_use = " ".join(f"-dont_use {cell}" for cell in pdk.dont_use)
    target = pdk.target_ps
    if options.clock_mhz:
        target = max(1e6 / options.clock_mhz - pdk.flop_ps, 1)
    top = design.name
    # Formal cells and the records of flattening are no hardware.
    clean = "chformal -remove; delete */t:$scopeinfo */t:$print */t:$check"
    gate = ""
    if _gating(technology, options) == "icg" and (icg := pdk.clock_gate):
        ties = " ".join(f"-tie_lo {pin}" for pin in icg.tie_low)
        pins = f"{icg.enable}:{icg.clock}:{icg.gated}"
        gate = f"clockgate -pos {icg.cell} {pins} {ties} -min_net_size {_GATED_FLOPS}"
    abc = f"abc {libraries} {dont_use} -constr abc.constr -D {target:.0f}"
    lines = [
        "read_rtlil design.il",
        "read_verilog -lib macros.v" if design.memories else "",
        # Values at power-up are a simulator's; silicon has none.
        f"setattr -set {netlist.REGISTER} 1 a:init",
        "setattr -unset init w:*",
        f"hierarchy -check -top {top}",
        "design -save source",
        f"synth -flatten -top {top}",
        clean,
        gate,
        "write_json registers.json",
        f"dfflibmap {libraries} {dont_use}",
        "design -save flat",
    ]
    for script in options.scripts:
        steps = SCRIPTS[script]
        commands = steps.format(D=f"{target:.0f}").replace("; ", ";") if steps else ""
        # A blank would end the argument; ABC gets the commas back as blanks.
        chosen = f"-script +{commands.replace(' ', ',')}" if commands else ""
        lines += [
            "design -load flat",
            f"log KVSMITH script {script}",
            f"{abc} {chosen}",
            f"tee -q -o {script}.json stat -json",
            # OpenSTA 2.0.17 reads no concatenation on the left of an assignment.
            "splitnets",
            "opt_clean -purge",
            f"write_verilog -noattr -noexpr -norename -simple-lhs {script}.v",
        ]
    if options.split:
        lines += [
            "design -load source",
            "log KVSMITH script hierarchy",
            f"synth -top {top}",
            clean,
            gate,
            f"dfflibmap {libraries} {dont_use}",
            abc,
            f"tee -q -o hierarchy.json stat -json -top {top}",
        ]
    return "\n".join(line for line in lines if line) + "\n"


def _run(
    design: _Design,
    script: str,
    technology: Technology,
    options: Options,
    tools: dict[str, str | None],
    folder: Path,
) -> dict[str, Any]:
    pdk, cells, shapes = technology.pdk, technology.cells, design.macros
    memories = _memories(design, technology)
    libraries = technology.write(folder)
    (folder / "design.il").write_text(design.text)
    (folder / "macros.v").write_text("".join(map(macros.declaration, shapes.values())))
    constraints = f"set_driving_cell {pdk.driving_cell}\nset_load {pdk.load_ff:g}\n"
    (folder / "abc.constr").write_text(constraints)
    if shapes and pdk.memory:
        libraries.append(folder / "memories.lib")
        libraries[-1].write_text(macros.timing_model(list(shapes.values()), pdk.memory))

    log = yosys.run_script(script, folder)
    delays = _delays(log)
    register_names = netlist.names(folder / "registers.json", design.name)
    runs = []
    for name in options.scripts:
        held = netlist.contents(folder / f"{name}.json", design.name, cells, set(shapes))
        timing = _timing(folder / f"{name}.v", design.name, libraries, technology,
                         register_names) if tools["opensta"] else {}  # fmt: skip
        runs.append(_figures(name, held, delays.get(name), timing))
    split = None
    if options.split:
        rows = netlist.sub_blocks(folder / "hierarchy.json", design.name, cells, set(shapes))
        split = [
            {"path": row.path, "area_um2": _round(row.area), "flops": row.flops} for row in rows
        ]
    return _combine(runs, split, technology) | memories


def _memories(design: _Design, technology: Technology) -> dict[str, Any]:
    figures = technology.pdk.memory
    if figures is None:
        if design.memories:
            raise ValueError(
                f"{design.name} has memories, and nothing is known of macros for "
                f"{technology.pdk.title}: name the PDK with --pdk"
            )
        return {"memory_bits": 0, "memory_area_um2": 0.0, "memories": []}
    rows = []
    for shape in design.memories:
        area, made_of = macros.area(shape, technology.memory_macros, figures)
        rows.append({
            "depth": shape.depth, "width": shape.width, "ports": shape.ports,
            "area_um2": _round(area), "macros": made_of,
        })  # fmt: skip
    return {
        "memory_bits": sum(row["depth"] * row["width"] for row in rows),
        "memory_area_um2": _round(sum(row["area_um2"] for row in rows)),
        "memories": rows,
    }


def _delays(log: str) -> dict[str, float]:
    """Worst delay that ABC gives for each script; none where there was no logic to map."""
    delays = {}
    parts = re.split(r"^KVSMITH script (\w+)$", log, flags=re.MULTILINE)
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        if found := re.findall(r"^ABC: .*\bDelay =\s*([\d.]+) ps", part, re.MULTILINE):
            delays[name] = float(found[-1])
    return delays


def _timing(
    path: Path, top: str, libraries: list[Path], technology: Technology, register_names: Names
) -> dict[str, Any]:
    pdk = technology.pdk
    clock = "clk" if "clk" in register_names.ports else None
    conditions = sta.Conditions(clock, pdk.driving_cell, pdk.load_ff, pdk.clock_uncertainty_ps)
    worst = sta.analyse(path, top, libraries, conditions)
    if worst is None:
        return {}
    return {
        # Without registers there is no clock whose frequency could be the highest.
        "fmax_mhz": _round(1e6 / worst.period_ps, 1) if clock and worst.period_ps > 0 else None,
        "critical_path": {
            "from": register_names.pin(worst.start),
            "to": register_names.pin(worst.end),
            "period_ps": _round(worst.period_ps, 1),
            "cells": worst.cells,
        },
    }


def _figures(
    name: str, held: Contents, delay: float | None, timing: dict[str, Any]
) -> dict[str, Any]:
    return {
        "script": name,
        "area_um2": _round(held.area),
        "delay_ps": _round(delay, 1) if delay is not None else None,
        "fmax_mhz": timing.get("fmax_mhz"),
        "critical_path": timing.get("critical_path"),
        "flops": held.flops,
        "latches": held.latches,
        "clock_gates": held.clock_gates,
        "gates": held.gates,
    }


def _combine(
    runs: list[dict[str, Any]], split: list[dict[str, Any]] | None, technology: Technology
) -> dict[str, Any]:
    """Figures of the block: area and delay of the figure flow, frequency of the best script."""
    figure = next((run for run in runs if run["script"] == _FIGURE), runs[0])
    fastest = max(runs, key=lambda run: run["fmax_mhz"] or 0)
    timed = fastest if fastest["fmax_mhz"] else figure
    return {
        "area_um2": figure["area_um2"],
        "area_ge": _round(figure["area_um2"] / technology.gate_area, 0),
        "flops": figure["flops"],
        "clock_gates": figure["clock_gates"],
        "delay_ps": figure["delay_ps"],
        "script": figure["script"],
        "fmax_mhz": timed["fmax_mhz"],
        "fmax_script": timed["script"] if timed["fmax_mhz"] else None,
        "fmax_area_um2": timed["area_um2"] if timed["fmax_mhz"] else None,
        "critical_path": timed["critical_path"],
        "scripts": runs,
        "sub_blocks": split,
    }


def _round(value: float, digits: int = 3) -> float:
    return round(value, digits)
