"""``kvsmith generate``: Verilog, manifest and file list of blocks."""

import argparse
from pathlib import Path
from typing import Any

from rtl.generate import generate
from scripts import settings

__all__ = ["add_parser", "run"]

_EXAMPLE = """example:
  kvsmith generate ris tisg selection -o build/rtl
  kvsmith generate ris tisg --set ris.ways=8 --set tisg.lanes=64

Each block gets BLOCK.v, BLOCK.json (ports, parameters, latency, memories, tools) and BLOCK.f.
The same input gives the same bytes. `kvsmith list` shows blocks and parameters."""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "generate",
        help="write the Verilog of blocks, with a manifest",
        description="Write one Verilog file per block, a manifest (JSON) and a file list.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("blocks", nargs="*", metavar="BLOCK", help="default: those of --config")
    settings.add_arguments(parser)
    parser.add_argument(
        "--black-boxes",
        action="store_true",
        help="leave memories out, as modules to map to macros; the manifest lists them",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("build/rtl"),
        metavar="DIR",
        help="folder to write to (default: build/rtl)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Generate the blocks; all settings are checked before anything is written."""
    for block, parameters in settings.read(args.blocks, args.set, args.config).items():
        path = generate(block, parameters, args.output, black_boxes=args.black_boxes)
        print(path, flush=True)
    return 0
