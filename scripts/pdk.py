"""`kvsmith pdk`: process design kits found on this machine."""

import argparse
import json

from synth import pdk as pdks
from synth.report import table

__all__ = ["add_parser", "run"]


def add_parser(subparsers) -> None:
    """Add the command to a parser's subparsers."""
    parser = subparsers.add_parser(
        "pdk",
        help="PDKs found on this machine, and how to get the others",
        epilog="example: KVSMITH_PDK_ROOT=/opt/pdk kvsmith pdk list",
    )
    parser.add_argument("action", choices=["list"], help="list: what is found, and where")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the PDKs."""
    rows = [_row(pdks.pdk(name)) for name in pdks.names()]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    shown = [["PDK", "found", "where, or how to get it"]]
    for row in rows:
        found = "yes" if row["found"] else "no"
        shown.append([row["name"], found, row["where"] if row["found"] else row["get"]])
    print(table(shown, left=3))
    return 0


def _row(pdk: pdks.Pdk) -> dict:
    found = pdk.find()
    root, files = found if found else (None, ())
    return {
        "name": pdk.name,
        "title": pdk.title,
        "found": found is not None,
        "where": f"{root.path} ({root.setting})" if root else None,
        "liberty": [str(file) for file in files],
        "macros": [str(file) for file in pdk.macro_files()],
        "get": pdk.get,
    }
