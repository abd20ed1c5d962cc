"""``kvsmith list``: blocks, their parameters, ranges and defaults."""

import argparse
import json
from typing import Any

from rtl.catalogue import BLOCKS

__all__ = ["add_parser", "run"]

_EXAMPLE = """example:
  kvsmith list
  kvsmith list --json | python3 -m json.tool"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "list",
        help="blocks, their parameters, ranges and defaults",
        description="Blocks that can be generated, their parameters, ranges and defaults.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _text(value: object) -> str:
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    blocks = [
        {
            "block": block.name,
            "summary": block.summary,
            "parameters": block.parameters.describe(),
        }
        for block in BLOCKS.values()
    ]
    if args.json:
        print(json.dumps(blocks, indent=2))
        return 0
    for entry in blocks:
        print(f"{entry['block']}: {entry['summary']}")
        for row in entry["parameters"]:
            name = f"{row['name']}={_text(row['default'])}"
            print(f"  {name:28} {row['meaning']} ({row['allowed']})")
    return 0
