"""``kvsmith trace``: capture an attention trace from a real model, or print what one holds."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from golden.llm.trace import EMBEDDED, Trace

__all__ = ["add_parser", "run"]

_TEXT = EMBEDDED.parent / "us_constitution.txt"
_EXAMPLE = """example:
  kvsmith trace --prompt 2048 --steps 256 --layers 0,14,29 -o long.npz
  kvsmith trace --info long.npz
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "trace",
        help="capture Q, K, V and P of a real model's decoding",
        description="Capture Q, K, V and P of a real model's decoding with the full cache.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, metavar="FILE.npz", help="the trace to write")
    add(
        "--info",
        nargs="?",
        type=Path,
        const=EMBEDDED,
        metavar="FILE.npz",
        help="print what a trace holds (default: the one that comes with kvsmith)",
    )
    add("--json", action="store_true", help="with --info: print JSON")
    add(
        "--model",
        type=Path,
        metavar="FILE.gguf",
        help="Llama-style weights (default: SmolLM2-135M-Instruct, downloaded once, 98 MB)",
    )
    add(
        "--text",
        type=Path,
        metavar="FILE",
        help=f"UTF-8 text to read (default: {_TEXT.name}, which comes with kvsmith)",
    )
    add("--prompt", type=int, default=256, metavar="N", help="prompt tokens (default: 256)")
    add("--steps", type=int, default=64, metavar="N", help="decode steps (default: 64)")
    add(
        "--layers",
        type=_numbers,
        metavar="N,N",
        help="layers to keep (default: the second, the middle and the last)",
    )
    add("--heads", type=_numbers, metavar="N,N", help="KV heads to keep (default: all)")
    add(
        "--windows",
        type=_numbers,
        metavar="N,N",
        help="recent-bank capacities to keep prompt scores for (default: all of a prompt up to "
        "512 tokens, else powers of two)",
    )
    add(
        "--greedy",
        action="store_true",
        help="decode the most likely tokens instead of the text's own",
    )
    parser.set_defaults(run=run)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be numbers with commas between, not {text!r}"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Capture a trace, or describe one; 0 on success."""
    if args.info is not None:
        trace = Trace.load(args.info)
        rows = _describe(trace, args.info)
        print(json.dumps(rows, indent=2) if args.json else _table(rows))
        return 0
    if args.output is None:
        raise ValueError("Output must be given: -o FILE.npz, or --info [FILE.npz] to read one")
    if args.output.suffix != ".npz" or not args.output.parent.is_dir():
        raise ValueError(
            f"Output must be a name ending in .npz in an existing directory, not '{args.output}'"
        )
    trace = _capture(args)
    trace.save(args.output)
    print(f"{args.output} {args.output.stat().st_size} bytes")
    return 0


def _capture(args: argparse.Namespace) -> Trace:
    from golden.llm import gguf_file, weights
    from golden.llm.capture import capture
    from golden.llm.llama import Llama
    from golden.llm.tokenizer import Tokenizer

    text_path = args.text or _TEXT
    content = text_path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Text must be UTF-8, not {text_path} ({error.reason})") from error
    show = _Progress()
    show("reading the weights", 0, 1)
    model_path = args.model or weights.default_weights()
    model = gguf_file.read(model_path)
    tokens = Tokenizer(model.metadata).encode(text)
    layers = model.config.layers
    try:
        return capture(
            Llama(model.config, model.weights),
            tokens,
            prompt=args.prompt,
            steps=args.steps,
            layers=args.layers or sorted({min(1, layers - 1), layers // 2, layers - 1}),
            kv_heads=args.heads or range(model.config.kv_heads),
            windows=args.windows,
            greedy=args.greedy,
            about={
                "model": model_path.stem,
                "text": text_path.name,
                "text_sha256": hashlib.sha256(content).hexdigest(),
                "decoding": "greedy" if args.greedy else "teacher-forced from the text",
            },
            progress=show,
        )
    finally:
        show.end()


class _Progress:
    """One line on the terminal, rewritten; silent where standard error is not a terminal."""

    def __init__(self):
        self._on = sys.stderr.isatty()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._on:
            print(f"\r\x1b[K{what}: {100 * done // total} %", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _describe(trace: Trace, path: Path) -> dict[str, Any]:
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        **trace.about,
        "prompt": trace.prompt,
        "steps": trace.steps,
        "layers": trace.layers.tolist(),
        "kv_heads": trace.kv_heads.tolist(),
        "queries_per_kv_head": trace.group,
        "head_dim": trace.head_dim,
        "windows": [int(trace.windows[0]), int(trace.windows[-1])],
        "window_count": len(trace.windows),
    }


def _table(rows: dict[str, Any]) -> str:
    return "\n".join(f"{name:20} {value}" for name, value in rows.items())
