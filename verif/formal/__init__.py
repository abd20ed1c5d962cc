"""Proofs with Yosys and an SMT solver: of components that hold their own assertions."""

import re
import tempfile
from pathlib import Path
from typing import Any

import z3
from amaranth.back import rtlil

from rtl.generate import top_ports
from synth import yosys

__all__ = ["Refuted", "prove"]

_SCRIPT = """
read_rtlil design.il
prep -flatten -top top
memory_map
chformal -lower
async2sync
dffunmap
opt_clean
write_smt2 -stbv -wires design.smt2
"""


class Refuted(AssertionError):
    """An assertion can be violated."""


def prove(component: Any, *, depth: int, induction: bool = False) -> None:
    """Show that no assertion of a component fails, whatever its inputs, where assumptions hold.

    Registers and memories start with their initial values, resets excepted: those may come at any
    time. With ``induction`` they then hold for ever.

    Parameters
    ----------
    component : wiring.Component
        With ``Assert`` and ``Assume`` statements inside.
    depth : int
        Clocks, at least 1: the assertions hold in the first ``depth`` of them.
    induction : bool
        Show too that if they hold in any ``depth`` clocks in a row, whatever the state, they hold
        in the next one.

    Raises
    ------
    Refuted
        If an assertion fails; the message tells the clock, and whether the start was arbitrary.
    """
    with tempfile.TemporaryDirectory(prefix="kvsmith-") as folder:
        text = rtlil.convert(component, name="top", ports=top_ports(component), emit_src=False)
        (Path(folder) / "design.il").write_text(text)
        yosys.run_script(_SCRIPT, Path(folder))
        design = (Path(folder) / "design.smt2").read_text()
    width = _state_width(design)
    for clock in range(depth):
        _check(design, width, clock, "|top_i| s0", f"clock {clock} after power-up")
    if induction:
        _check(design, width, depth, "true", f"a clock after {depth} without a failure")


def _state_width(design: str) -> int:
    match = re.search(r"\(define-sort \|top_s\| \(\) \(_ BitVec (\d+)\)\)", design)
    if match is None:
        raise ValueError("Yosys wrote no state of fixed width")
    return int(match[1])


def _check(design: str, width: int, last: int, start: str, where: str) -> None:
    """Look for a run of ``last`` steps whose last state alone violates an assertion."""
    lines = [f"(declare-const s{n} (_ BitVec {width}))" for n in range(last + 1)]
    lines += [f"(assert {start if start == 'true' else f'({start})'})"]
    for n in range(last + 1):
        lines.append(f"(assert (|top_h| s{n}))")
        lines.append(f"(assert (|top_u| s{n}))")
        if n < last:
            lines += [f"(assert (|top_a| s{n}))", f"(assert (|top_t| s{n} s{n + 1}))"]
    lines.append(f"(assert (not (|top_a| s{last})))")
    solver = z3.SolverFor("QF_BV")
    solver.from_string(design + "\n".join(lines))
    answer = solver.check()
    if answer == z3.sat:
        raise Refuted(f"An assertion can fail in {where}")
    if answer != z3.unsat:
        raise RuntimeError(f"The solver gave no answer for {where}: {solver.reason_unknown()}")
