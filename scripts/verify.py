"""``kvsmith verify``: the cocotb benches on the emitted Verilog."""

import argparse
import json
import os
import random
import sys
from typing import Any

from rtl.catalogue import BLOCKS
from verif import regression
from verif.simulate import SIMULATORS, Outcome

__all__ = ["add_parser", "run"]

_EXAMPLE = """example:
  kvsmith verify ris
  kvsmith verify ris --seed 7 --simulator icarus --waves

Each block runs at the configurations that verif/tb_BLOCK.toml lists. Without --seed a new one is
drawn and printed; the same seed gives the same run."""


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 1, not {text!r}")
    return int(text)


def _natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a number from 0, not {text!r}")
    return int(text)


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "verify",
        help="simulate blocks against their golden models",
        description="Simulate the emitted Verilog of blocks against their golden models.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("blocks", nargs="*", metavar="BLOCK", help="default: all that have a bench")
    add(
        "--simulator",
        choices=SIMULATORS,
        default="verilator",
        help="verilator (default), or icarus: four-state, slow, at small sizes",
    )
    add("--seed", type=_natural, metavar="N", help="replay that run (default: a new one)")
    add("--waves", action="store_true", help="write a wave file for each simulation")
    add(
        "-j",
        "--jobs",
        type=_positive,
        metavar="N",
        default=os.cpu_count() or 1,
        help="simulations at a time (default: one per processor)",
    )
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)  # fmt: skip


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "block": outcome.block,
        "parameters": outcome.parameters.as_dict(),
        "simulator": outcome.simulator,
        "seed": outcome.seed,
        "passed": outcome.passed,
        "seconds": round(outcome.seconds, 3),
        "tests": [
            {"name": test.name, "passed": test.passed, "message": test.message}
            for test in outcome.tests
        ],
        "output": str(outcome.log),
        "waves": str(outcome.waves) if outcome.waves else None,
    }


def run(args: argparse.Namespace) -> int:
    """Simulate; 0 only if there was something to simulate and all of it passed."""
    chosen = regression.cases(args.blocks, args.simulator)
    if not chosen:
        raise ValueError(
            f"No configuration for {args.simulator} among {', '.join(args.blocks or BLOCKS)}"
        )
    progress = sys.stderr if args.json else sys.stdout
    for name in BLOCKS:
        if not args.blocks and not regression.has_bench(name):
            print(f"{name} is skipped: it has no bench (verif/tb_{name}.py)", file=progress)
    seed = random.randrange(2**31) if args.seed is None else args.seed
    print(f"seed {seed}", file=progress, flush=True)
    rows, failed = [], 0
    outcomes = regression.run(chosen, seed=seed, waves=args.waves, jobs=args.jobs)
    for number, (case, outcome) in enumerate(zip(chosen, outcomes, strict=True), 1):
        print(f"[{number}/{len(chosen)}] {case.name}", file=progress)
        print(outcome.report(), file=progress, flush=True)
        rows.append(_row(outcome))
        failed += not outcome.passed
    if args.json:
        print(json.dumps(rows, indent=2))
    tests = sum(len(row["tests"]) for row in rows)
    print(
        f"{tests} tests in {len(rows)} simulations, {failed} simulations failed, seed {seed}",
        file=progress,
    )
    return 1 if failed else 0
