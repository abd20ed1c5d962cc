"""Entry point of the command ``kvsmith``."""

import argparse
import importlib
import os
import sys

__all__ = ["COMMANDS", "build_parser", "main"]

#: Sub-commands in the order of ``--help``; each is the module of :mod:`scripts` of that name.
COMMANDS = ("list", "generate", "verify", "synth", "pdk", "trace", "demo")


def build_parser() -> argparse.ArgumentParser:
    """Parser with all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="kvsmith", description="Generator of KV-cache management hardware for LLM accelerators"
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        importlib.import_module(f"scripts.{command}").add_parser(subparsers)
    return parser


def _sentence(error: Exception) -> str:
    """Say what went wrong, without the number that the system gives it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    return str(error)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 only on success, 2 and one sentence on bad input."""
    args = build_parser().parse_args(arguments)
    try:
        return args.run(args)
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader left; keep the interpreter from failing again on its final flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        print(f"kvsmith: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kvsmith: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
