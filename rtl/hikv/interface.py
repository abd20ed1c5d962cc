"""What the parts of the HiKV selector say to one another, and to those who integrate it."""

from amaranth import unsigned
from amaranth.lib import data, enum

from golden.parameters import HikvSelectorParameters, ScoreboardParameters

__all__ = [
    "Cause",
    "Grouping",
    "Operation",
    "budget_layout",
    "command_layout",
    "initial_layout",
    "release_layout",
    "response_layout",
    "row_layout",
    "scoreboard_command_layout",
    "selection_layout",
    "weights_layout",
]


class Operation(enum.Enum, shape=3):
    """What a command asks for (HiKV hardware, commands of a context)."""

    STEP = 0
    INIT = 1
    LOAD = 2
    SAVE = 3
    CLEAR = 4


class Cause(enum.Enum, shape=4):
    """Why a command failed."""

    NONE = 0
    BAD_OPERATION = 1
    BAD_CONTEXT = 2
    NO_BUDGET = 3
    UNINITIALISED = 4
    BAD_INIT = 5
    BAD_LOAD = 6
    PARITY = 7
    P_LENGTH = 8
    Q_LENGTH = 9
    RELEASE_TIMEOUT = 10
    ABORTED = 11
    BAD_QUERY = 12


class Grouping(enum.Enum, shape=2):
    """How the query heads of one group share a selection."""

    PER_QUERY = 0
    PER_GROUP = 1
    UNION = 2


def _context(p: ScoreboardParameters) -> range:
    return range(max(2, p.contexts))


def scoreboard_command_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Command to the scoreboard: STEP admits one newcomer, whatever the number of query heads."""
    return data.StructLayout({"operation": Operation, "context": _context(p), "tag": p.tag_width})


def command_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """Command to the selector; ``query``, ``first`` and ``last`` of its group matter to STEP."""
    return data.StructLayout({
        "operation": Operation,
        "context": _context(p),
        "query": range(max(2, p.queries)),
        "first": 1,
        "last": 1,
        "tag": p.tag_width,
    })


def response_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Answer to a command.

    ``slot``: the newcomer's; ``evicted``: whether the token in that slot left the cache;
    ``promoted``: whether the oldest recent token went into the important bank; ``occupied``: slots
    in use afterwards.
    """
    return data.StructLayout({
        "operation": Operation,
        "context": _context(p),
        "tag": p.tag_width,
        "slot": p.slot_width,
        "evicted": 1,
        "promoted": 1,
        "occupied": range(p.max_slots + 1),
        "cause": Cause,
    })


def initial_layout(p: ScoreboardParameters) -> data.StructLayout:
    """One token of INIT: those of the important bank in any order, then the recent, oldest first.

    A context without any token is made by CLEAR.
    """
    return data.StructLayout({
        "score": p.score_width,
        "slot": p.slot_width,
        "important": 1,
        "last": 1,
    })


def weights_layout(p: ScoreboardParameters) -> data.StructLayout:
    """One beat of P (or of Q) as fp16, in order of slots (dimensions)."""
    return data.StructLayout({"values": data.ArrayLayout(unsigned(16), p.lanes), "last": 1})


def row_layout(p: ScoreboardParameters) -> data.StructLayout:
    """One row of a context that is saved or loaded."""
    return data.StructLayout({"data": p.lanes * p.score_width, "last": 1})


def budget_layout(p: ScoreboardParameters) -> data.StructLayout:
    """One entry of the head budget table; ``last`` lays the memories out anew."""
    return data.StructLayout({
        "context": _context(p),
        "cap_recent": range(p.max_slots + 1),
        "cap_important": range(p.max_slots + 1),
        "last": 1,
    })


def release_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """All reads of the step with that tag are done."""
    return data.StructLayout({"context": _context(p), "tag": p.tag_width})


def selection_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """One selection: elements of K (chunk 0), or slots of one chunk of V.

    ``last``: last chunk of the step. ``error``: the vector was too short or too long, or the step
    failed; what is selected is then not to be used.
    """
    return data.StructLayout({
        "context": _context(p),
        "query": range(max(2, p.queries)),
        "tag": p.tag_width,
        "chunk": range(max(2, p.chunks)),
        "last": 1,
        "error": 1,
        "count": range(p.head_dim + 1),
        "mask": p.head_dim,
    })
