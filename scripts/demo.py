"""``kvsmith demo``: a real model's attention through the simulated blocks, Verilog and figures."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from golden.llm.trace import Trace
from golden.parameters import HikvSelectorParameters, ScoreboardParameters, TisgParameters
from golden.traffic import Traffic
from rtl.catalogue import block
from rtl.generate import generate
from rtl.hikv.scoreboard_core import ScoreboardCore
from synth import flow, report, sta, technology
from synth.comparison import beside_paper
from verif.selector_replay import GROUPING, bounds, replay
from verif.simulate import simulate

__all__ = ["add_parser", "run"]

_OUTPUT = Path("build/rtl")
_STORE = Path("build/synth")
_SELECTOR = "hikv_selector"
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
    selector = _selector(trace)
    _describe(trace, selector)
    generate(_SELECTOR, selector, args.output)
    agreed = _simulate(selector, args.trace)
    _account(trace, selector)
    _figures(chosen)
    print(f"\nVerilog, manifest and file list: {args.output}/")
    print("result:", "all agree" if agreed else "DISAGREEMENT, see above")
    return 0 if agreed else 1


def _selector(trace: Trace) -> HikvSelectorParameters:
    """Selector with a context per captured head, whose slots hold half the prompt."""
    layers, heads, group, _, head_dim = trace.q.shape
    capacity = max(1, trace.prompt // 4)
    return HikvSelectorParameters(
        contexts=layers * heads,
        cap_recent=capacity,
        cap_important=capacity,
        max_slots=2 * capacity,
        head_dim=head_dim,
        queries=group,
    )


def _describe(trace: Trace, selector: HikvSelectorParameters) -> None:
    layers, heads, group, steps, head_dim = trace.q.shape
    budgets = bounds(head_dim)
    print(f"model    {trace.about.get('model', 'unknown')}")
    print(f"trace    layers {', '.join(map(str, trace.layers))}, {heads} KV heads of {group} query "
          f"heads, prompt {trace.prompt}, {steps} decode steps")  # fmt: skip
    print(f"cache    {selector.cap_recent} recent + {selector.cap_important} important tokens per "
          f"head; of Q {budgets['b_iik']}, of each chunk of P {budgets['b_iiv']} selected, "
          f"{GROUPING} of the group")  # fmt: skip
    print(f"replays  {layers * heads * steps} decode steps, {layers * heads * group * steps} "
          "queries (Q) and rows of P\n")  # fmt: skip


def _simulate(selector: HikvSelectorParameters, trace: Path | None) -> bool:
    started = time.monotonic()
    print("replay   building and simulating the Verilog ...", file=sys.stderr, flush=True)
    outcome = simulate(_SELECTOR, selector, seed=1, tests=f"real_trace.*{GROUPING}", trace=trace)
    took = time.monotonic() - started
    if outcome.passed:
        print("replay   every slot, eviction, promotion and mask equals the golden model's "
              f"({took:.0f} s)")  # fmt: skip
    else:
        print(outcome.report())
    return outcome.passed


def _account(trace: Trace, selector: HikvSelectorParameters) -> None:
    """Print what the replayed steps did to the banks, and the bytes they moved."""
    steps = [run.step(step) for run in replay(trace, selector) for step in range(trace.steps)]
    moved = sum((step.traffic for step in steps), Traffic())
    evicted = sum(step.admission.evicted for step in steps)
    promoted = sum(step.admission.promoted for step in steps)
    print(f"banks    {evicted} evictions, {promoted} promotions")
    rows = [["bytes", "HiKV", "full cache", "share"]]
    for name, ours, full in (
        ("read", moved.k_read + moved.v_read, moved.full_read),
        ("written", moved.written, moved.full_written),
        ("all", moved.total, moved.full_read + moved.full_written),
    ):
        rows.append([name, f"{ours:,}", f"{full:,}", f"{ours / full:.1%}"])
    print("\n" + report.table(rows))


def _figures(chosen: technology.Technology) -> None:
    """Print area and speed of what the paper's Table I names, at the paper's sizes."""
    lanes = TisgParameters().lanes
    blocks = {"ris": 1, "tisg": _ADDERS // lanes, "scoreboard": 1}
    results = []
    for name in blocks:
        print(f"synth    {name} on {chosen.pdk.name} ...", file=sys.stderr, flush=True)
        component = _scoreboard() if name == "scoreboard" else block(name).make()
        options = flow.Options(split=False)
        results.append(flow.measure(component, chosen, options, name=name, store=_STORE))
    rows = [["block", "area um2", "memories um2", "gates", "flops", "fmax MHz", "delay ps"]]
    for result in results:
        fmax = result["fmax_mhz"]
        rows.append([
            result["block"], f"{result['area_um2']:,.0f}", f"{result['memory_area_um2']:,.0f}",
            f"{result['area_ge']:,.0f}", f"{result['flops']:,}",
            "-" if fmax is None else f"{fmax:,.0f}", f"{result['delay_ps']:,.0f}",
        ])  # fmt: skip
    print(f"\n{chosen.pdk.name}, Yosys {results[0]['tools']['yosys']}; ideal clock, no wires; "
          "the scoreboard for 32 contexts of 1,024 slots, its sorter apart")  # fmt: skip
    print(report.table(rows))
    if results[0]["tools"]["opensta"] is None:
        print(f"no frequency without OpenSTA; install it: {sta.INSTALL}")
    print("\nbeside HiKV, Table I (16 nm; the gate's area there is assumed)")
    print(report.table(beside_paper(results, blocks)))


def _scoreboard() -> ScoreboardCore:
    return ScoreboardCore(ScoreboardParameters())
