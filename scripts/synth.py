"""`kvsmith synth`: area, timing and critical path of blocks."""

import argparse
import json
import sys
from pathlib import Path

from rtl.catalogue import block
from scripts import settings
from synth import flow, report, sta, technology
from synth import pdk as pdks

__all__ = ["add_parser", "run"]

_STORE = Path("build/synth")


def add_parser(subparsers) -> None:
    """Add the command to a parser's subparsers."""
    parser = subparsers.add_parser(
        "synth",
        help="area, gate equivalents, flops, memories, frequency and critical path of blocks",
        epilog="example: kvsmith synth sorter --set ways=8 --set stall=false --pdk nangate45",
    )
    parser.add_argument("block", nargs="*", metavar="BLOCK", help="as `kvsmith list` names them")
    parser.add_argument("--pdk", metavar="NAME", help=f"one of {', '.join(pdks.names())}; default "
                        f"{pdks.BUILTIN}, or what fits the --liberty files")  # fmt: skip
    parser.add_argument("--liberty", nargs="+", action="extend", default=[], type=Path,
                        metavar="FILE", help="liberty files in place of those found for the PDK")
    parser.add_argument("--clock-mhz", type=float, metavar="F",
                        help="size gates for this frequency instead of for speed")
    settings.add_arguments(parser)
    parser.add_argument("--script", action="append", choices=list(flow.SCRIPTS),
                        help="ABC script; may be repeated; default: "
                        f"{', '.join(flow.USUAL_SCRIPTS)}, the fastest is named")
    parser.add_argument("--clock-gate", choices=flow.CLOCK_GATES,
                        help="of enabled registers: icg gates the clock, enable multiplexes, none "
                        "is for blocks that cannot stall; default: icg where the PDK has one")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure each block; print when all are done."""
    parameters = settings.read(args.block, args.set, args.config)
    options = flow.Options(
        scripts=tuple(dict.fromkeys(args.script or flow.USUAL_SCRIPTS)),
        clock_mhz=args.clock_mhz,
        clock_gate=args.clock_gate,
    )
    chosen = technology.load(args.pdk, args.liberty)
    results = []
    for name, values in parameters.items():
        print(f"synth: {name} on {chosen.pdk.name} ...", file=sys.stderr, flush=True)
        component = block(name).make(values)
        results.append(flow.measure(component, chosen, options, name=name, store=_STORE))
    if any(result["tools"]["opensta"] is None for result in results):
        print(f"synth: no frequency without OpenSTA; install it: {sta.INSTALL}", file=sys.stderr)
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        print("\n\n".join(map(report.describe, results)))
    return 0
