"""HiKV on a real model or on the embedded trace: time, perplexity, traffic, recall.

``python -m golden.benchmarks.hikv`` decodes with the model, ``--trace`` prints the table of the
embedded trace, which needs no weights.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.hikv import stage_one_budget, stage_two_budget
from golden.hikv_head import Heads, Step
from golden.llm import gguf_file, weights
from golden.llm.hikv_cache import HikvCache
from golden.llm.llama import Attend, FullCache, Llama
from golden.llm.tokenizer import Tokenizer
from golden.llm.trace import EMBEDDED, Trace
from golden.parameters import (
    GROUPINGS,
    SCORE_FORMATS,
    SLOT_ORDERS,
    UNSELECTED,
    HikvParameters,
)
from golden.selection import select
from golden.traffic import Traffic

__all__ = ["Recall", "decode", "log_probabilities", "main", "trace_row"]

_TEXT = EMBEDDED.parent / "us_constitution.txt"


class Recall:
    """How much of the global top set the selection by chunks keeps, per query head.

    The global set has as many entries as the chunks select together.
    """

    def __init__(self, b_iiv: int, head_dim: int):
        self._b_iiv = b_iiv
        self._head_dim = head_dim
        self._sums = np.zeros(4)

    def __call__(self, layer: int, steps: list[Step]) -> None:
        """Count the steps of a layer's KV heads."""
        for step in steps:
            self._add(step.p)

    def _add(self, p: NDArray[np.uint16]) -> None:
        length = p.shape[-1]
        chunked = select(p, self._b_iiv, head_dim=self._head_dim)
        ours = chunked.masks.reshape(len(p), -1)[:, :length]
        best = select(p, int(chunked.counts[0].sum()), head_dim=length).masks[:, 0]
        mass = p.view(np.float16).astype(float)
        self._sums += [
            (ours & best).sum(), best.sum(), (mass * ours).sum(), (mass * best).sum()
        ]  # fmt: skip

    @property
    def by_count(self) -> float:
        """Share of the entries of the global set."""
        return self._sums[0] / self._sums[1]

    @property
    def by_mass(self) -> float:
        """Probability mass of the chunks' set over that of the global one."""
        return self._sums[2] / self._sums[3]


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Normalise logits over the last axis."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def decode(
    model: Llama, tokens: list[int], position: int, attend: Attend, size: int = 1
) -> NDArray[np.float64]:
    """Feed tokens; log-probabilities of what follows each, shape (tokens, vocabulary).

    Parameters
    ----------
    model : Llama
        The model.
    tokens : list of int
        Ids to feed, the first at ``position``.
    position : int
        Tokens that ``attend`` has seen before.
    attend : Attend
        The cache.
    size : int
        Tokens per call of the model, which are as many decode steps.
    """
    hidden = list(model.prefill(tokens, attend, position=position, rows=size))
    return log_probabilities(model.logits(np.concatenate(hidden)))


class _Clock:
    """Wall and processor seconds since it was made."""

    def __init__(self):
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        wall = time.perf_counter() - self._wall
        return f"{wall:.1f} s ({time.process_time() - self._processor:.1f} s of processor)"


def _parameters(args: argparse.Namespace, head_dim: int) -> HikvParameters:
    budget = stage_one_budget(args.prompt, args.ratio_one)
    return HikvParameters(
        head_dim=head_dim,
        cap_recent=budget // 2,
        cap_important=budget // 2,
        b_iik=stage_two_budget(head_dim, args.ratio_two_k),
        b_iiv=stage_two_budget(head_dim, args.ratio_two_v),
        grouping=args.grouping,
        unselected=args.unselected,
        slot_order=args.slot_order,
        score_format=args.score_format,
    )


def _on_the_model(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    file = gguf_file.read(args.model or weights.default_weights())
    model = Llama(file.config, file.weights)
    first, last = args.offset, args.offset + args.prompt + args.steps
    tokens = Tokenizer(file.metadata).encode(args.text.read_text("utf-8"))[first : last + 1]
    if len(tokens) <= args.prompt + args.steps:
        raise ValueError(
            f"Text must have more than {last} tokens for this prompt and these steps, not"
            f" {first + len(tokens)}; give a longer one"
        )
    prompt, fed, followers = (
        tokens[: args.prompt], tokens[args.prompt : -1], tokens[args.prompt + 1 :]
    )  # fmt: skip
    parameters = _parameters(args, model.config.head_dim)
    recall = Recall(parameters.b_iiv, parameters.head_dim) if args.recall else None
    cache = HikvCache(
        model.config, parameters, burst=args.burst, resident=args.resident, observer=recall
    )
    yield "parameters", ", ".join(f"{k} {v}" for k, v in parameters.as_dict().items())

    whole, clock = _Clock(), _Clock()
    for _ in model.prefill(prompt, cache):
        pass
    cache.start_decoding()
    yield f"prompt of {args.prompt}", str(clock)
    clock = _Clock()
    size = len(fed) if args.at_once else 1
    ours = decode(model, fed, args.prompt, cache, size)
    yield f"{args.steps} steps", str(clock)
    yield "together", str(whole)

    likelihood = ours[np.arange(len(fed)), followers]
    yield "perplexity", f"{np.exp(-likelihood.mean()):.3f}"
    yield from _traffic_rows(cache.traffic)
    if recall is not None:
        yield from _recall_rows(recall)
    if args.full:
        full = FullCache(model.config)
        for _ in model.prefill(prompt, full):
            pass
        yield from _comparison(ours, decode(model, fed, args.prompt, full, size), followers)


def _traffic_rows(traffic: Traffic) -> Iterator[tuple[str, str]]:
    whole = traffic.full_read + traffic.full_written
    yield "traffic", f"{traffic.share:.2%} of the full cache's {whole} bytes"
    for name in ("k_read", "v_read", "written", "metadata"):
        yield f"  {name}", f"{getattr(traffic, name) / whole:.2%}"


def _recall_rows(recall: Recall) -> Iterator[tuple[str, str]]:
    yield "recall", f"{recall.by_count:.2%} by count, {recall.by_mass:.2%} by mass"


def _comparison(ours: Any, full: Any, followers: list[int]) -> Iterator[tuple[str, str]]:
    likelihood = full[np.arange(len(full)), followers]
    divergence = (np.exp(full) * (full - ours)).sum(axis=-1).mean()
    agreement = (full.argmax(axis=-1) == ours.argmax(axis=-1)).mean()
    yield "perplexity of the full cache", f"{np.exp(-likelihood.mean()):.3f}"
    yield "KL divergence to it", f"{divergence:.4f}"
    yield "same most likely token", f"{agreement:.1%}"


def trace_row(trace: Trace, parameters: HikvParameters) -> tuple[Traffic, Recall]:
    """Replay a trace's decode steps in all its layers and heads.

    Parameters
    ----------
    trace : Trace
        Q, K and V are taken from it, so a step's output does not reach later ones.
    parameters : HikvParameters
        Budgets and options.
    """
    total, recall = Traffic(), Recall(parameters.b_iiv, parameters.head_dim)
    capacities = [(parameters.cap_recent, parameters.cap_important)] * len(trace.kv_heads)
    initial = trace.initial_scores(parameters.cap_recent)
    for layer in range(len(trace.layers)):
        q, k, v = (getattr(trace, name)[layer].view(np.float16) for name in "qkv")
        heads = Heads(parameters, capacities)
        heads.initialise(list(initial[layer]), k[:, : trace.prompt], v[:, : trace.prompt])
        for step in range(trace.steps):
            token = trace.prompt + step
            steps = heads.step(q[:, :, step], k[:, token], v[:, token])
            recall(layer, steps)
            total = sum((step.traffic for step in steps), total)
    return total, recall


def _on_the_trace(args: argparse.Namespace) -> None:
    trace = Trace.load()
    args.prompt = trace.prompt
    print("| r_I | r_II | grouping | traffic | K | V | written | recall by count | by mass |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one, two, grouping in itertools.product(("1", "2", "4"), ("1", "2", "4"), GROUPINGS):
        args.ratio_one, args.ratio_two_k, args.ratio_two_v = one, two, two
        args.grouping = grouping
        moved, recall = trace_row(trace, _parameters(args, trace.head_dim))
        whole = moved.full_read + moved.full_written
        shares = [x / whole for x in (moved.total, moved.k_read, moved.v_read, moved.written)]
        columns = [f"{x:.1%}" for x in (*shares, recall.by_count, recall.by_mass)]
        print("| " + " | ".join([one, two, grouping, *columns]) + " |")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m golden.benchmarks.hikv", description=__doc__)
    add = parser.add_argument
    add("--trace", action="store_true", help="table of the embedded trace, no model")
    add("--model", type=Path, help="Llama-style GGUF file (default: SmolLM2-135M-Instruct)")
    add("--text", type=Path, default=_TEXT, help=f"UTF-8 text (default: {_TEXT.name})")
    add("--offset", type=int, default=0, help="token of the text that the prompt begins with")
    add("--prompt", type=int, default=2048, help="prompt tokens")
    add("--steps", type=int, default=256, help="decode steps")
    add("--ratio-one", default="2", help="r_I")
    add("--ratio-two-k", default="2", help="r_II of K")
    add("--ratio-two-v", default="2", help="r_II of V")
    add("--grouping", choices=GROUPINGS, default="union")
    add("--unselected", choices=UNSELECTED, default="drop")
    add("--slot-order", choices=SLOT_ORDERS, default="interleaved")
    add("--score-format", choices=SCORE_FORMATS, default="fp16")
    add("--at-once", action="store_true", help="one call of the model for all steps (faster)")
    add("--burst", type=int, default=2, help="bytes of the smallest transfer (2: exact)")
    add("--resident", type=int, help="contexts that the scoreboard holds (default: all)")
    add("--recall", action="store_true", help="compare chunked with global selection (slower)")
    add("--full", action="store_true", help="compare with the full cache (slower)")
    return parser


def main() -> None:
    """Run the command."""
    args = _arguments().parse_args()
    if args.trace:
        _on_the_trace(args)
        return
    for name, value in _on_the_model(args):
        print(f"{name:30}{value}", flush=True)


if __name__ == "__main__":
    main()
