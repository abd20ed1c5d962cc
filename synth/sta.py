"""OpenSTA in a child process, with commands that 2.0.17 and 3.x share."""

import dataclasses
import re
import shutil
from pathlib import Path

from synth.process import ToolError, run

__all__ = ["INSTALL", "Conditions", "WorstPath", "analyse", "version"]

#: How to get it; it is not on PyPI.
INSTALL = "apt-get install opensta"

_OLDEST = (2, 0, 17)
#: The smallest period is a fixed point: paths that end half a period on converge step by step.
_ITERATIONS = 8

_SCRIPT = """\
proc say {{key value}} {{ puts "KVSMITH $key $value" }}
proc worst {{}} {{
  set worst ""
  foreach path [find_timing_paths -path_delay max] {{
    if {{$worst eq "" || [get_property $path slack] < [get_property $worst slack]}} {{
      set worst $path
    }}
  }}
  return $worst
}}
if {{[catch {{
{libraries}
  read_verilog {netlist}
  link_design {top}
  set_cmd_units -time ps -capacitance fF
  set period 1000.0
  set inputs [list]
  foreach port [all_inputs] {{
    if {{[get_property $port full_name] ne "{clock}"}} {{ lappend inputs $port }}
  }}
  set_load {load_ff} [all_outputs]
  if {{[llength $inputs]}} {{ set_driving_cell -lib_cell {driving_cell} $inputs }}
  for {{set round 0}} {{$round < {iterations}}} {{incr round}} {{
    create_clock -name clk -period $period {clock_port}
    set_clock_uncertainty {uncertainty_ps} [get_clocks clk]
    if {{[llength $inputs]}} {{ set_input_delay 0 -clock clk $inputs }}
    set_output_delay 0 -clock clk [all_outputs]
    set path [worst]
    if {{$path eq ""}} {{ say paths none; error "no paths" }}
    set slack [get_property $path slack]
    set period [expr {{$period - $slack}}]
    if {{abs($slack) < 0.01}} {{ break }}
  }}
  say period $period
  say slack $slack
  say from [get_property [get_property $path startpoint] full_name]
  say to [get_property [get_property $path endpoint] full_name]
  report_checks -path_delay max -format full -digits 3
  say done yes
}} message]}} {{ say error $message }}
exit
"""


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What stands around a netlist; ``clock`` is the clock port's name, None without one."""

    clock: str | None
    driving_cell: str
    load_ff: float
    clock_uncertainty_ps: float


@dataclasses.dataclass(frozen=True)
class WorstPath:
    """Worst path: its ends as pins or ports, the smallest period it allows, cells along it."""

    start: str
    end: str
    period_ps: float
    cells: int


def version() -> str | None:
    """Version of the `sta` on PATH; None if there is none.

    Raises
    ------
    ToolError
        If it is too old.
    """
    if shutil.which("sta") is None:
        return None
    _, output = run(["sta", "-version"], Path.cwd(), timeout=60)
    number = re.search(r"\d+(\.\d+)+", output)
    if number is None:
        raise ToolError(f"sta on PATH names no version; install OpenSTA: {INSTALL}")
    if tuple(int(part) for part in number[0].split(".")) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ToolError(f"OpenSTA must be {oldest} or newer, not {number[0]}: {INSTALL}")
    return number[0]


def analyse(
    netlist: Path, top: str, libraries: list[Path], conditions: Conditions
) -> WorstPath | None:
    """Worst path from any register or input to any register or output.

    The clock is ideal, nothing is known of wires; inputs come with the clock through a driving
    cell, outputs are due at the next clock.

    Parameters
    ----------
    netlist : Path
        Flat mapped Verilog.
    top : str
        Its module.
    libraries : list of Path
        Liberty files, not compressed, of all cells and macros, in the netlist's folder.
    conditions : Conditions
        Clock, drivers and loads.

    Returns
    -------
    WorstPath or None
        None if no path is timed.

    Raises
    ------
    ToolError
        If OpenSTA reports an error or leaves a cell as a black box.
    """
    script = _SCRIPT.format(
        libraries="\n".join(f"  read_liberty {path.name}" for path in libraries),
        netlist=netlist.name,
        top=top,
        clock=conditions.clock or "",
        clock_port=f"[get_ports {conditions.clock}]" if conditions.clock else "",
        driving_cell=conditions.driving_cell,
        load_ff=conditions.load_ff,
        uncertainty_ps=conditions.clock_uncertainty_ps,
        iterations=_ITERATIONS,
    )
    tcl = netlist.with_suffix(".tcl")
    tcl.write_text(script)
    code, output = run(["sta", "-no_splash", "-exit", tcl.name], netlist.parent)
    return _parse(code, output)


def _parse(code: int, output: str) -> WorstPath | None:
    if black_box := re.search(r"module (\S+) not found", output):
        raise ToolError(f"OpenSTA knows no cell {black_box[1]}; add the liberty file that has it")
    said = dict(re.findall(r"^KVSMITH (\w+) (.*)$", output, re.MULTILINE))
    if said.get("paths") == "none":
        return None
    error = said.get("error") or next(iter(re.findall(r"^Error: (.*)$", output, re.MULTILINE)), "")
    if error:
        raise ToolError(f"OpenSTA: {error.strip()}")
    if code or "done" not in said:
        raise ToolError(f"OpenSTA ended with code {code} and without a result")
    if abs(float(said["slack"])) > 0.1:
        raise ToolError("OpenSTA found no smallest period: its paths do not settle")
    start, end = (said[key].replace("\\", "") for key in ("from", "to"))
    return WorstPath(
        start=start,
        end=end,
        period_ps=float(said["period"]),
        cells=len(_instances(output) - {pin.rpartition("/")[0] for pin in (start, end)}),
    )


def _instances(output: str) -> set[str]:
    """Instances on a reported path, of lines like `delay time edge instance/pin (cell)`."""
    report = output.partition("Startpoint")[2].partition("data arrival time")[0]
    pins = re.findall(r"^\s*\S+\s+\S+ [v^] (\S+)/\S+ \(", report, re.MULTILINE)
    return {pin.replace("\\", "") for pin in pins}
