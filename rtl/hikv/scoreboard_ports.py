"""Ports of the scoreboard, with and without its sorter."""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import halves_layout, invocation_layout, picks_layout
from rtl.hikv.interface import (
    budget_layout,
    initial_layout,
    response_layout,
    row_layout,
    scoreboard_command_layout,
)
from rtl.hikv.scoreboard_layouts import context_shape
from rtl.hikv.weights_front import p_layout

__all__ = ["MEANINGS", "latency", "members"]

MEANINGS = {
    "i_command": "commands",
    "o_response": "one answer per command, in order",
    "i_p": "attention weights of the steps answered, in slot order",
    "i_init": "tokens of an INIT",
    "i_load": "rows of a LOAD",
    "o_save": "rows of a SAVE",
    "i_budget": "head budget table",
    "o_ris_sort": "to i_sort of the sorter",
    "o_ris_pick": "to i_pick of the sorter",
    "i_ris_pick": "from o_pick of the sorter",
    "abort": "lose a context",
    "abort_context": "the context to lose",
    "bad_p": "for one clock: a weight was NaN or negative, and not added",
    "bad_p_context": "with bad_p: its context",
    "p_length": "for one clock: P was too short or too long, the context is lost",
    "p_length_context": "with p_length: its context",
    "unexpected_p": "for one clock: P that no step waits for is dropped",
    "parity_error": "for one clock: wrong parity, the context is lost",
    "parity_context": "with parity_error: its context",
    "budget_ok": "the latest head budget table is in force",
    "budget_refused": "the latest head budget table was refused",
    "promoted": "event: a token entered the important bank",
    "rejected": "event: a token was evicted from the recent bank",
    "accumulated": "event: a beat of P was added",
    "idle": "nothing is under way",
}


def members(p: ScoreboardParameters) -> dict:
    """Members by name, those of the sorter included."""
    context = context_shape(p)
    return {
        "i_command": In(stream.Signature(scoreboard_command_layout(p))),
        "o_response": Out(stream.Signature(response_layout(p))),
        "i_p": In(stream.Signature(p_layout(p))),
        "i_init": In(stream.Signature(initial_layout(p))),
        "i_load": In(stream.Signature(row_layout(p))),
        "o_save": Out(stream.Signature(row_layout(p))),
        "i_budget": In(stream.Signature(budget_layout(p))),
        "o_ris_sort": Out(stream.Signature(invocation_layout(p))),
        "o_ris_pick": Out(stream.Signature(picks_layout(p))),
        "i_ris_pick": In(stream.Signature(halves_layout(p))),
        "abort": In(1),
        "abort_context": In(context),
        "bad_p": Out(1),
        "bad_p_context": Out(context),
        "p_length": Out(1),
        "p_length_context": Out(context),
        "unexpected_p": Out(1),
        "parity_error": Out(1),
        "parity_context": Out(context),
        "budget_ok": Out(1),
        "budget_refused": Out(1),
        "promoted": Out(1),
        "rejected": Out(1),
        "accumulated": Out(1),
        "idle": Out(1),
    }


def latency(p: ScoreboardParameters) -> dict[str, int]:
    """Clocks when nothing stalls."""
    return {
        "i_command to o_response, STEP": 4,
        "i_p to its row written": 7 if p.adder_registers else 5,
    }
