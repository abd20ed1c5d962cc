"""Print the benchmark table: ``python -m synth.benchmarks``."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from synth.benchmarks.rows import Judged, Row, Technologies, peers, rows
from synth.report import table

_STORE = Path("build/synth")
_NAMES = {
    "area_um2": "area um2",
    "um2_each": "um2 each",
    "delay_ps": "delay ps",
    "fmax_mhz": "fmax MHz",
    "invocations": "invocations",
    "seconds": "seconds",
    "identical": "identical files",
}


def main(arguments: list[str] | None = None) -> int:
    """Measure every row and print it; 0 if all could be measured, reached or not."""
    parser = argparse.ArgumentParser(prog="python -m synth.benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose name has this in it")
    parser.add_argument("--pdk", metavar="NAME", help="for --liberty: the PDK they belong to")
    parser.add_argument("--liberty", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    if bool(args.pdk) != bool(args.liberty):
        parser.error("--pdk and --liberty come together; without both, PDKs are searched for")
    files = {args.pdk: args.liberty} if args.pdk else {}
    results = []
    for row in rows(Technologies(files, _STORE)):
        if args.only in row.name:
            print(f"bench: {row.name} ...", file=sys.stderr, flush=True)
            results.append(_measure(row))
    if not results:
        parser.error(f"no row has {args.only!r} in its name")
    print(json.dumps(results, indent=2) if args.json else _text(results))
    failed = [result for result in results if result["error"]]
    for result in failed:
        print(f"bench: {result['row']}: {result['error']}", file=sys.stderr)
    return 1 if failed else 0


def _measure(row: Row) -> dict[str, Any]:
    try:
        figures, how = row.measure()
        error = None
    except (ImportError, OSError, ValueError) as caught:
        figures, how, error = {}, "not measured", str(caught)
    return {
        "row": row.name,
        "how": how,
        "error": error,
        "figures": figures,
        "targets": [_target(judged) for judged in row.judge(figures)],
        "peers": [_peer(name, figures) for name in row.peers],
    }


def _target(judged: Judged) -> dict[str, Any]:
    missed = judged.shortfall
    return {
        "figure": judged.figure,
        "measured": judged.value,
        "target": judged.target,
        "at_most": judged.at_most,
        "ratio": round(judged.ratio, 3) if judged.ratio is not None else None,
        "verdict": "not measured" if judged.value is None
        else "reached" if not missed else f"short by {missed:.1%}",
    }  # fmt: skip


def _peer(name: str, figures: dict[str, float | None]) -> dict[str, Any]:
    peer = peers()[name]
    ratios = {}
    for figure in ("area_um2", "delay_ps"):
        value = figures.get(figure)
        ratios[figure] = round(value / peer[figure], 3) if value is not None else None
    return {"peer": name, "source": peer["source"], "what": peer["what"], "ratios": ratios}


def _text(results: list[dict[str, Any]]) -> str:
    head = ["row", "figure", "measured", "target", "ratio", "verdict", "how"]
    lines = [head]
    for result in results:
        for target in result["targets"]:
            sign = "<=" if target["at_most"] else ">="
            lines.append([
                result["row"], _NAMES[target["figure"]], _number(target["measured"]),
                f"{sign} {_number(target['target'])}", _number(target["ratio"], 2),
                target["verdict"], result["how"],
            ])  # fmt: skip
    compared = [["row", "beside", "area, ours by theirs", "delay, ours by theirs"]]
    for result in results:
        for peer in result["peers"]:
            ratios = peer["ratios"]
            compared.append([
                result["row"], f"{peer['what']} ({peer['source']})",
                _number(ratios["area_um2"], 2), _number(ratios["delay_ps"], 2),
            ])  # fmt: skip
    text = table(lines, left=2)
    return text if len(compared) == 1 else f"{text}\n\n{table(compared, left=2)}"


def _number(value: float | None, digits: int = 0) -> str:
    if value is None:
        return "-"
    return f"{value:,.{digits}f}" if digits or value >= 10 else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
