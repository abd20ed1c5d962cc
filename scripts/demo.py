"""``kvsmith demo``: a real model's attention through the simulated blocks, Verilog and figures."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from golden.llm.trace import Trace
from golden.parameters import Parameters, RisParameters, SelectionParameters, TisgParameters
from rtl.catalogue import block
from rtl.generate import generate
from synth import flow, report, sta, technology
from synth.comparison import beside_paper
from verif.simulate import simulate

__all__ = ["add_parser", "run"]

_OUTPUT = Path("build/rtl")
_STORE = Path("build/synth")
_ADDERS = 512

_EXAMPLE = """example:
  kvsmith demo
  kvsmith demo --trace my.npz --pdk nangate45

The trace that comes with the project is one of SmolLM2-135M-Instruct; `kvsmith trace` captures
others. Figures are those of the built-in 45 nm library unless --pdk names another one."""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "demo",
        help="replay a real decode trace, write the Verilog, print area and speed",
        description="Replay a real model's decode trace through golden model and simulated Verilog,"
        " show that they agree, and print area and speed.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trace", type=Path, metavar="FILE.npz", help="another trace")
    parser.add_argument("--pdk", metavar="NAME", help="as `kvsmith pdk list` names them")
    parser.add_argument("-o", "--output", type=Path, default=_OUTPUT, metavar="DIR",
                        help="folder for the Verilog (default: build/rtl)")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run all parts; 0 only if every replayed beat agreed."""
    trace = Trace.load(args.trace) if args.trace else Trace.load()
    chosen = technology.load(args.pdk, [])
    blocks: dict[str, Parameters] = {
        "ris": RisParameters(),
        "selection": SelectionParameters(
            head_dim=trace.head_dim, max_length=max(trace.head_dim, len(trace.tokens))
        ),
        "tisg": TisgParameters(),
    }
    _describe(trace)
    for name, parameters in blocks.items():
        generate(name, parameters, args.output)
    agreed = [_replay(name, blocks[name], args.trace) for name in ("selection", "tisg")]
    _figures(blocks, chosen)
    print(f"\nVerilog, manifests and file lists: {args.output}/")
    print("result:", "all agree" if all(agreed) else "DISAGREEMENT, see above")
    return 0 if all(agreed) else 1


def _describe(trace: Trace) -> None:
    layers, heads, group, steps, head_dim = trace.q.shape
    queries = layers * heads * group * steps
    chunks = layers * heads * group * sum(
        -(-trace.length(step) // head_dim) for step in range(steps)
    )
    print(f"model    {trace.about.get('model', 'unknown')}")
    print(f"trace    layers {', '.join(map(str, trace.layers))}, {heads * group} query heads, "
          f"prompt {trace.prompt}, {steps} decode steps")  # fmt: skip
    print(f"replays  {queries} queries (Q) and {queries} attention rows (P, {chunks} chunks)\n")


def _replay(name: str, parameters: Parameters, trace: Path | None) -> bool:
    started = time.monotonic()
    print(f"replay   {name}: building and simulating its Verilog ...", file=sys.stderr, flush=True)
    outcome = simulate(name, parameters, seed=1, tests="real_trace", trace=trace)
    took = time.monotonic() - started
    if outcome.passed:
        print(f"replay   {name}: every beat equals the golden model's ({took:.0f} s)")
    else:
        print(outcome.report())
    return outcome.passed


def _figures(blocks: dict[str, Parameters], chosen: technology.Technology) -> None:
    results = []
    for name, parameters in blocks.items():
        print(f"synth    {name} on {chosen.pdk.name} ...", file=sys.stderr, flush=True)
        component = block(name).make(parameters)
        options = flow.Options(split=False)
        results.append(flow.measure(component, chosen, options, name=name, store=_STORE))
    rows = [["block", "area um2", "gates", "flops", "memory bits", "fmax MHz", "delay ps"]]
    for result in results:
        fmax = result["fmax_mhz"]
        rows.append([
            result["block"], f"{result['area_um2']:,.0f}", f"{result['area_ge']:,.0f}",
            f"{result['flops']:,}", f"{result['memory_bits']:,}",
            "-" if fmax is None else f"{fmax:,.0f}", f"{result['delay_ps']:,.0f}",
        ])  # fmt: skip
    print(f"\n{chosen.pdk.name}, Yosys {results[0]['tools']['yosys']}; ideal clock, no wires")
    print(report.table(rows))
    if results[0]["tools"]["opensta"] is None:
        print(f"no frequency without OpenSTA; install it: {sta.INSTALL}")
    lanes = block("tisg").parameters().as_dict()["lanes"]
    print("\nbeside HiKV, Table I (16 nm; the gate's area there is assumed)")
    print(report.table(beside_paper(results, {"ris": 1, "tisg": _ADDERS // lanes})))
