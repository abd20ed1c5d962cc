"""Writer of `builtin45.lib`: a small generic 45 nm library, from a table and a linear model.

Areas are whole sites of 0.19 x 1.4 um, as published 45 nm libraries have them. Delay is
``intrinsic + resistance x load + 0.33 x slew``, the same for both edges and all inputs; output
transition is ``0.6 x intrinsic + 0.75 x resistance x load`` of the last stage. The resistance of a
gate of one stage follows from an inverter's 2 ps/fF, plus 0.4 for each further n-transistor in
series and 1.4 for each further p-transistor, averaged over its inputs.

Run ``python -m synth.pdk.make_builtin45`` after a change here.
"""

import dataclasses
from pathlib import Path

__all__ = ["TARGET", "text"]

#: The file that :func:`text` belongs into.
TARGET = Path(__file__).with_name("builtin45.lib")

_SITE = 0.19 * 1.4
_SLEW_GAIN = 0.33
# Two points would do for straight lines; ABC takes its typical slew and load from the middle.
_SLEWS = (2, 10, 50, 200)
_LOADS = (0.5, 4, 16, 60)
_INPUTS = "ABCDEF"


@dataclasses.dataclass(frozen=True)
class _Gate:
    """A gate: ``sites`` by drive; fF per input, ps, ps per fF and fF at drive 1."""

    name: str
    function: str
    sites: dict[int, int]
    capacitance: float
    intrinsic: float
    resistance: float
    sense: str = "negative_unate"
    transition: float | None = None


_GATES = (
    _Gate("inv", "!A", {1: 2, 2: 3, 4: 5, 8: 9}, 1.7, 3, 2.0),
    _Gate("buf", "A", {1: 3, 2: 4, 4: 7, 8: 13}, 1.0, 17, 2.0, "positive_unate", 4),
    _Gate("nand2", "!(A & B)", {1: 3, 2: 5}, 1.7, 7, 2.4),
    _Gate("nand3", "!(A & B & C)", {1: 4}, 1.7, 11, 2.8),
    _Gate("nand4", "!(A & B & C & D)", {1: 5}, 1.7, 15, 3.2),
    _Gate("nor2", "!(A | B)", {1: 3, 2: 5}, 1.7, 8, 3.4),
    _Gate("nor3", "!(A | B | C)", {1: 4}, 1.7, 15, 4.8),
    _Gate("nor4", "!(A | B | C | D)", {1: 5}, 1.7, 25, 6.2),
    _Gate("and2", "A & B", {1: 4}, 1.0, 23, 2.0, "positive_unate", 5),
    _Gate("and3", "A & B & C", {1: 5}, 1.0, 30, 2.0, "positive_unate", 6),
    _Gate("or2", "A | B", {1: 4}, 1.0, 28, 2.0, "positive_unate", 6),
    _Gate("or3", "A | B | C", {1: 5}, 1.0, 42, 2.0, "positive_unate", 8),
    _Gate("aoi21", "!((A & B) | C)", {1: 4}, 1.7, 13, 3.6),
    _Gate("aoi22", "!((A & B) | (C & D))", {1: 5}, 1.7, 16, 3.8),
    _Gate("aoi211", "!((A & B) | C | D)", {1: 5}, 1.7, 22, 5.0),
    _Gate("aoi221", "!((A & B) | (C & D) | E)", {1: 6}, 1.7, 24, 5.1),
    _Gate("oai21", "!((A | B) & C)", {1: 4}, 1.7, 11, 3.1),
    _Gate("oai22", "!((A | B) & (C | D))", {1: 5}, 1.7, 16, 3.8),
    _Gate("oai211", "!((A | B) & C & D)", {1: 5}, 1.7, 15, 3.2),
    _Gate("oai221", "!((A | B) & (C | D) & E)", {1: 6}, 1.7, 18, 3.6),
    _Gate("xor2", "A ^ B", {1: 6}, 2.4, 26, 3.6, "non_unate", 9),
    _Gate("xnor2", "!(A ^ B)", {1: 6}, 2.4, 22, 3.1, "non_unate", 8),
    _Gate("mux2", "(A & !S) | (B & S)", {1: 7}, 1.3, 40, 2.2, "non_unate", 7),
)

_HEAD = """\
/* Written by synth/pdk/make_builtin45.py, which explains the model; do not edit. */
library (builtin45) {
  delay_model : table_lookup;
  time_unit : "1ns";
  voltage_unit : "1V";
  current_unit : "1mA";
  leakage_power_unit : "1nW";
  pulling_resistance_unit : "1kohm";
  capacitive_load_unit (1, ff);
  nom_process : 1;
  nom_voltage : 1.1;
  nom_temperature : 25;
  slew_lower_threshold_pct_rise : 30;
  slew_upper_threshold_pct_rise : 70;
  slew_lower_threshold_pct_fall : 30;
  slew_upper_threshold_pct_fall : 70;
  input_threshold_pct_rise : 50;
  input_threshold_pct_fall : 50;
  output_threshold_pct_rise : 50;
  output_threshold_pct_fall : 50;
"""


def text() -> str:
    """Compose the liberty file."""
    templates = "".join(
        f"  lu_table_template (linear_{drive}) {{ variable_1 : input_net_transition; "
        f"variable_2 : total_output_net_capacitance; "
        f"index_1 ({_list([slew / 1000 for slew in _SLEWS])}); "
        f"index_2 ({_list([load * drive for load in _LOADS])}); }}\n"
        for drive in (1, 2, 4, 8)
    )
    gates = "".join(_gate(gate, drive) for gate in _GATES for drive in gate.sites)
    return _HEAD + templates + gates + _flop() + _latch() + _clock_gate() + _ties() + "}\n"


def main() -> None:
    """Write the file."""
    TARGET.write_text(text())


def _list(values: list[float]) -> str:
    return '"' + ", ".join(f"{value:g}" for value in values) + '"'


def _cell(name: str, sites: int, body: str) -> str:
    return f"  cell (b45_{name}) {{\n    area : {sites * _SITE:.3f};\n{body}  }}\n"


def _input(name: str, capacitance: float, more: str = "") -> str:
    return f"    pin ({name}) {{ direction : input; capacitance : {capacitance:g}; {more}}}\n"


def _arc(related: str, attributes: str, delays: tuple[float, float, float], drive: int = 1) -> str:
    """Compose a timing group from intrinsic delay, resistance and transition at drive 1."""
    intrinsic, resistance, transition = delays
    loads = [load * drive for load in _LOADS]
    rows = {
        "cell": [
            [intrinsic + resistance / drive * load + _SLEW_GAIN * slew for load in loads]
            for slew in _SLEWS
        ],
        "transition": [
            [transition + 0.75 * resistance / drive * load for load in loads] for _ in _SLEWS
        ],
    }
    tables = ""
    for table, kinds in (("cell", ("cell_rise", "cell_fall")),
                         ("transition", ("rise_transition", "fall_transition"))):  # fmt: skip
        values = ", ".join(_list([round(value / 1000, 5) for value in row]) for row in rows[table])
        for kind in kinds:
            tables += f"        {kind} (linear_{drive}) {{ values ({values}); }}\n"
    head = f'        related_pin : "{related}"; {attributes}\n'
    return f"      timing () {{\n{head}{tables}      }}\n"


def _constraint(related: str, kind: str, ps: float) -> str:
    tables = " ".join(
        f'{edge}_constraint (scalar) {{ values ("{ps / 1000:g}"); }}' for edge in ("rise", "fall")
    )
    return f'timing () {{ related_pin : "{related}"; timing_type : {kind}; {tables} }} '


def _gate(gate: _Gate, drive: int) -> str:
    pins = [pin for pin in (*_INPUTS, "S") if pin in gate.function]
    transition = 0.6 * gate.intrinsic if gate.transition is None else gate.transition
    delays = (gate.intrinsic, gate.resistance, transition)
    arcs = "".join(_arc(pin, f"timing_sense : {gate.sense};", delays, drive) for pin in pins)
    output = (
        f"    pin (Z) {{\n      direction : output; max_capacitance : {_LOADS[-1] * drive};\n"
        f'      function : "{gate.function}";\n{arcs}    }}\n'
    )
    inputs = "".join(_input(pin, gate.capacitance * drive) for pin in pins)
    return _cell(f"{gate.name}_{drive}", gate.sites[drive], inputs + output)


def _output(name: str, function: str, arcs: str) -> str:
    return (
        f"    pin ({name}) {{\n      direction : output; max_capacitance : {_LOADS[-1]};\n"
        f"      {function}\n{arcs}    }}\n"
    )


def _flop() -> str:
    checks = _constraint("CK", "setup_rising", 40) + _constraint("CK", "hold_rising", 0)
    arc = _arc("CK", "timing_type : rising_edge; timing_sense : non_unate;", (70, 2.1, 6))
    body = (
        '    ff (IQ, IQN) { next_state : "D"; clocked_on : "CK"; }\n'
        + _input("D", 1.1, checks)
        + _input("CK", 1.0, "clock : true; ")
        + _output("Q", 'function : "IQ";', arc)
    )
    return _cell("dff_1", 17, body)


def _latch() -> str:
    checks = _constraint("G", "setup_falling", 40) + _constraint("G", "hold_falling", 0)
    arcs = _arc("D", "timing_sense : positive_unate;", (46, 2.3, 7)) + _arc(
        "G", "timing_type : rising_edge; timing_sense : non_unate;", (46, 2.3, 7)
    )
    body = (
        '    latch (IQ, IQN) { data_in : "D"; enable : "G"; }\n'
        + _input("D", 1.0, checks)
        + _input("G", 1.0, "clock : true; ")
        + _output("Q", 'function : "IQ";', arcs)
    )
    return _cell("latch_1", 10, body)


def _clock_gate() -> str:
    checks = _constraint("CK", "setup_rising", 60) + _constraint("CK", "hold_rising", 0)
    arc = _arc("CK", "timing_sense : positive_unate;", (21, 2.7, 4))
    body = (
        "    clock_gating_integrated_cell : latch_posedge;\n"
        '    statetable ("CK E", "IQ") { table : "L L : - : L, L H : - : H, H - : - : N"; }\n'
        "    pin (IQ) { direction : internal; internal_node : IQ; }\n"
        + _input("E", 1.0, "clock_gate_enable_pin : true; " + checks)
        + _input("CK", 1.8, "clock : true; clock_gate_clock_pin : true; ")
        + _output("GCK", 'clock_gate_out_pin : true; state_function : "CK & IQ";', arc)
    )
    return _cell("clkgate_1", 13, body)


def _ties() -> str:
    return "".join(
        _cell(f"tie{value}", 2, f'    pin (Z) {{ direction : output; function : "{value}"; }}\n')
        for value in (0, 1)
    )


if __name__ == "__main__":
    main()
