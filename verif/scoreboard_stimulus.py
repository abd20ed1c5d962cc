"""Commands, tokens, rows and weights for the scoreboard, and what golden contexts make of them."""

import copy
import dataclasses
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.hikv import Context
from golden.numerics import score_dtype
from golden.parameters import ScoreboardParameters
from golden.scoreboard import saved_rows
from rtl.hikv.interface import Cause, Operation

__all__ = [
    "BAD_INITS",
    "BAD_LOADS",
    "Order",
    "bad_init",
    "bad_load",
    "beats_of",
    "cause_of",
    "copied",
    "full_context",
    "load_payload",
    "possible",
    "random_context",
    "random_orders",
    "random_weights",
    "rows_of",
    "tokens_of",
]

#: Ways in which the tokens of an INIT can be out of order.
BAD_INITS = ("doubled", "gap", "beyond", "late", "many recent", "many important", "negative", "nan")
#: Ways in which rows can be inconsistent.
BAD_LOADS = (
    "short", "long", "budget", "count", "place", "ring slot", "doubled", "mark", "score", "key",
    "slot of empty",
)  # fmt: skip


@dataclasses.dataclass
class Order:
    """One command; ``context`` holds the tokens of an INIT, ``source`` the number of the SAVE."""

    operation: Operation
    number: int
    context: Context | None = None
    source: int | None = None
    fault: str | None = None


def random_context(rng: np.random.Generator, caps: tuple[int, int], score_format: str) -> Context:
    """Context after a prefill with random scores, often equal ones, sometimes not full."""
    context = Context(*caps, score_format)
    tokens = int(rng.integers(1, 2 * context.slots + 2))
    values = rng.integers(1, 9, size=tokens) / 8 if rng.integers(2) else rng.random(tokens) * 4
    if score_format == "ufix":
        scores = np.floor(values * (1 << 8)).astype(np.uint32)
    else:
        kind = np.float16 if score_format == "fp16" else np.float32
        scores = values.astype(kind).view(score_dtype(score_format))
    context.initialise(scores, int(rng.integers(4, 17)))
    return context


def full_context(caps: tuple[int, int], score_format: str) -> Context:
    """Context with both banks full of tokens of one score."""
    recent, important = caps
    context = Context(recent, important, score_format)
    context.initialise(np.full(2 * context.slots, 0x3C, context.scores.dtype), 8)
    return context


def tokens_of(context: Context, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Payloads of INIT: the important bank in any order, then the recent one, oldest first."""
    important = rng.permutation(sorted(context.important)).astype(np.intp)
    slots = np.array([*important, *context.recent], dtype=np.intp)
    places = np.arange(len(slots))
    return {
        "score": context.scores[slots],
        "slot": slots,
        "important": places < len(important),
        "last": places == len(slots) - 1,
    }


def random_weights(
    rng: np.random.Generator, queries: int, occupied: int, bad: bool = False
) -> NDArray[np.uint16]:
    """Weights of one step, shape (queries, occupied): small ones, a few levels, or bad ones too."""
    shape = (queries, occupied)
    values = rng.integers(0, 3, size=shape) / 2 if rng.integers(2) else rng.random(shape) ** 4
    bits = values.astype(np.float16).view(np.uint16)
    if bad:
        odd = np.array([0x7E00, 0xFC00, 0x8001, 0x8000, 0x7C00, 0xFFFF], np.uint16)
        bits = np.where(rng.random(shape) < 0.2, rng.choice(odd, size=shape), bits)
    return bits


def beats_of(
    p: ScoreboardParameters, number: int, weights: NDArray[np.uint16], rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Payloads of ``i_p`` for a step; anything stands in the lanes beyond the occupied slots."""
    queries, occupied = weights.shape
    beats = -(-occupied // p.lanes)
    values = rng.integers(1 << 16, size=(queries, beats * p.lanes)).astype(np.uint16)
    values[:, :occupied] = weights
    places = np.arange(queries * beats)
    return {
        "context": np.full(queries * beats, number),
        "values": values.reshape(-1, p.lanes),
        "last": places % beats == beats - 1,
        "final": places // beats == queries - 1,
    }


def load_payload(rows: list[int], width: int, last: int | None = None) -> dict[str, NDArray[Any]]:
    """Payloads of ``i_load``; ``last`` is the number of the row that says so."""
    if width <= 64:
        content = np.array(rows, dtype=np.uint64)
    else:
        bits = [np.frombuffer(f"{row:0{width}b}"[::-1].encode(), np.uint8) - ord("0")
                for row in rows]  # fmt: skip
        content = np.array(bits).astype(bool)
    ending = len(rows) - 1 if last is None else last
    return {"data": content, "last": np.arange(len(rows)) == ending}


def rows_of(content: NDArray[Any]) -> list[int]:
    """Integers of the ``data`` of saved rows."""
    if content.ndim == 1:
        return [int(row) for row in content]
    return [int("".join("1" if bit else "0" for bit in row[::-1]), 2) for row in content]


def bad_init(
    fault: str, p: ScoreboardParameters, context: Context, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Payloads of an INIT that must fail; the context should be full."""
    tokens = tokens_of(context, rng)
    count, important = len(tokens["slot"]), len(context.important)
    sign = 1 << (p.score_width - 1)
    if fault == "doubled":
        tokens["slot"][count - 1] = tokens["slot"][0]
    elif fault == "gap":
        tokens = {name: values[important:] for name, values in tokens.items()}
        tokens["slot"] = tokens["slot"] * 0 + np.arange(1, len(tokens["slot"]) + 1)
    elif fault == "beyond":
        tokens["slot"][0] = (1 << p.slot_width) - 1
    elif fault == "late":
        tokens = {name: np.roll(v, 1) if name != "last" else v for name, v in tokens.items()}
    elif fault in ("many recent", "many important"):
        tokens["important"] = np.full(count, fault == "many important")
    elif fault == "negative":
        tokens["score"][rng.integers(count)] |= sign
    elif fault == "nan":
        tokens["score"][rng.integers(count)] = sign - 1
    return tokens


def bad_load(fault: str, p: ScoreboardParameters, context: Context) -> dict[str, NDArray[Any]]:
    """Payloads of a LOAD that must fail; the context should be full, with both banks."""
    rows = saved_rows(context, p)
    width = p.lanes * p.score_width
    count = p.max_slots.bit_length()
    place = max(1, (p.max_slots - 1).bit_length())
    ring_rows = -(-context.cap_recent // p.lanes)
    score_rows = -(-context.slots // p.lanes)
    entry = p.score_width
    last = None
    if fault == "short":
        rows = rows[:-1]
    elif fault == "long":
        rows = [*rows, 0, 0]
    elif fault == "budget":
        rows[0] ^= 1 << (2 * count + place)
    elif fault == "count":
        rows[0] ^= 1 << count
    elif fault == "place":
        rows[0] |= context.cap_recent << (2 * count)
    elif fault == "ring slot":
        rows[1] |= (1 << p.slot_width) - 1
    elif fault == "doubled":
        slots = [rows[1] >> (lane * p.slot_width) & ((1 << p.slot_width) - 1) for lane in (0, 1)]
        rows[1] ^= slots[0] ^ slots[1]
    elif fault == "mark":
        lane = context.recent[0]
        rows[-score_rows + lane // p.lanes] |= 1 << ((lane % p.lanes + 1) * p.score_width - 1)
    elif fault == "score":
        lane = context.recent[0]
        rows[-score_rows + lane // p.lanes] |= (
            (1 << (p.score_width - 1)) - 1 << lane % p.lanes * p.score_width
        )
    elif fault == "key":
        rows[1 + ring_rows] ^= 1 << (entry - 1)
    elif fault == "slot of empty":
        rows[1 + ring_rows] &= ~((1 << entry) - 1)
    return load_payload(rows, width, last)


def random_orders(
    p: ScoreboardParameters,
    rng: np.random.Generator,
    count: int,
    caps: dict[int, tuple[int, int]],
    *,
    faults: bool = False,
) -> list[Order]:
    """Commands for contexts of given capacities, each made by INIT or CLEAR before it is used."""
    orders: list[Order] = []
    made: set[int] = set()
    saves: deque[int] = deque(maxlen=4)
    numbers = sorted(caps)
    while len(orders) < count:
        number = int(rng.choice(numbers))
        kind = rng.choice(["step", "init", "clear", "save", "load", "fault"],
                          p=[0.77, 0.06, 0.03, 0.06, 0.06, 0.02])  # fmt: skip
        if kind == "fault" and faults:
            fault = str(rng.choice(["operation", "context", "init", "load", "abort"]))
            orders.append(_faulty(fault, p, rng, number, caps))
            if fault in ("init", "load", "abort"):
                made.discard(number)
        elif number not in made or kind == "init":
            made.add(number)
            if rng.random() < 0.2:
                orders.append(Order(Operation.CLEAR, number))
            else:
                context = random_context(rng, caps[number], p.score_format)
                orders.append(Order(Operation.INIT, number, context))
        elif kind == "clear":
            orders.append(Order(Operation.CLEAR, number))
        elif kind == "save":
            saves.append(len(orders))
            orders.append(Order(Operation.SAVE, number))
        elif kind == "load" and saves:
            source = int(rng.choice(saves))
            if caps[orders[source].number] == caps[number]:
                orders.append(Order(Operation.LOAD, number, source=source))
        else:
            orders.append(Order(Operation.STEP, number))
    return orders


def _faulty(fault, p, rng, number, caps) -> Order:
    if fault == "context" and p.contexts & (p.contexts - 1):
        return Order(Operation.STEP, p.contexts, fault=fault)
    if fault in ("init", "load"):
        full = full_context(caps[number], p.score_format)
        choices = [f for f in (BAD_INITS if fault == "init" else BAD_LOADS)
                   if possible(f, caps[number], p)]  # fmt: skip
        operation = Operation.INIT if fault == "init" else Operation.LOAD
        return Order(operation, number, full, fault=str(rng.choice(choices)))
    if fault == "abort":
        return Order(Operation.STEP, number, fault="abort")
    return Order(Operation.STEP, number, fault="operation")


def possible(fault: str, caps: tuple[int, int], p: ScoreboardParameters) -> bool:
    """Whether a full context of these capacities can have that fault."""
    recent, important = caps
    slots = recent + important
    if fault in ("late", "many recent", "key", "slot of empty", "count"):
        return important > 0
    if fault == "doubled":
        return recent > 1
    if fault == "beyond":
        return slots < 1 << p.slot_width
    return True


def cause_of(order: Order) -> Cause:
    """Why a faulty command fails."""
    if order.operation == Operation.INIT:
        return Cause.BAD_INIT
    if order.operation == Operation.LOAD:
        return Cause.BAD_LOAD
    return {"operation": Cause.BAD_OPERATION, "context": Cause.BAD_CONTEXT,
            "abort": Cause.ABORTED}[order.fault or ""]  # fmt: skip


def copied(context: Context) -> Context:
    """Context that goes its own way."""
    return copy.deepcopy(context)
