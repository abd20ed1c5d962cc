"""Parameter classes of every block: the one place where a default or a legal range lives."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

__all__ = [
    "NETWORKS",
    "SCORE_FORMATS",
    "GROUPINGS",
    "HikvParameters",
    "HikvSelectorAxiParameters",
    "HikvSelectorParameters",
    "Parameters",
    "RisParameters",
    "SLOT_ORDERS",
    "ScoreboardParameters",
    "SelectionParameters",
    "SorterParameters",
    "TisgParameters",
    "UNSELECTED",
]

NETWORKS = ("bitonic", "odd_even_merge", "size_optimal")
SCORE_FORMATS = ("fp16", "fp32", "ufix")
GROUPINGS = ("per_query", "per_group", "union")
UNSELECTED = ("drop", "renormalise", "mean")
SLOT_ORDERS = ("interleaved", "contiguous")


def _describe(name: str) -> str:
    return name[0].upper() + name[1:].replace("_", " ")


def _parse_integer(text: str) -> int:
    return int(text, 0)


def _parse_flag(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def _parse_stages(text: str) -> tuple[int, ...]:
    return tuple(int(stage) for stage in text.strip("()[] ").split(",") if stage.strip())


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What a parameter may be: a type, a test, and the words for both."""

    type: type
    allowed: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any]
    meaning: str


def _field(default: object, rule: _Rule) -> Any:
    return dataclasses.field(default=default, metadata={"rule": rule})


def _integer(default: int, low: int, high: int, meaning: str) -> Any:
    allowed = f"an integer from {low} to {high}"
    return _field(default, _Rule(int, allowed, lambda v: low <= v <= high, _parse_integer, meaning))


def _choice(default: int | str, options: tuple, meaning: str) -> Any:
    allowed = "one of " + ", ".join(str(option) for option in options)
    kind = type(default)
    parse = _parse_integer if kind is int else str
    return _field(default, _Rule(kind, allowed, lambda v: v in options, parse, meaning))


def _flag(default: bool, meaning: str) -> Any:
    return _field(default, _Rule(bool, "true or false", lambda v: True, _parse_flag, meaning))


def _stages(default: tuple[int, ...] | None, meaning: str) -> Any:
    def ascending(stages):
        integers = all(isinstance(s, int) and not isinstance(s, bool) for s in stages)
        return integers and all(a < b for a, b in zip((0, *stages), stages, strict=False))

    allowed = "stage numbers from 1 in increasing order"
    return _field(default, _Rule(tuple, allowed, ascending, _parse_stages, meaning))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of all parameter classes: frozen, and checked when made.

    Raises
    ------
    TypeError
        If a value has the wrong type (a bool is no integer).
    ValueError
        If a value is out of its range; the message names value and range.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            rule, value = field.metadata["rule"], getattr(self, field.name)
            if value is None and field.default is None:
                continue
            message = f"{_describe(field.name)} must be {rule.allowed}, not {value!r}"
            if not isinstance(value, rule.type) or (isinstance(value, bool) != (rule.type is bool)):
                raise TypeError(message)
            if not rule.accepts(value):
                raise ValueError(message)
        self._check()

    def _check(self) -> None:
        """Relations between parameters; a subclass raises ValueError."""

    @classmethod
    def describe(cls) -> list[dict[str, Any]]:
        """One row per parameter: ``name``, ``default``, ``allowed``, ``meaning``."""
        return [
            {
                "name": field.name,
                "default": field.default,
                "allowed": field.metadata["rule"].allowed,
                "meaning": field.metadata["rule"].meaning,
            }
            for field in dataclasses.fields(cls)
        ]

    @classmethod
    def parse(cls, settings: dict[str, Any]) -> Self:
        """Parameters from settings as typed on a command line or read from TOML.

        Parameters
        ----------
        settings : dict
            Parameter name to value; a string is converted to the parameter's type, a list to a
            tuple.

        Raises
        ------
        ValueError
            If a name is unknown, or a string is not of the parameter's type.
        """
        rules = {field.name: field.metadata["rule"] for field in dataclasses.fields(cls)}
        values = {}
        for name, value in settings.items():
            if name not in rules:
                known = ", ".join(rules)
                raise ValueError(f"Unknown parameter {name!r}: known are {known}")
            if isinstance(value, str) and rules[name].type is not str:
                try:
                    value = rules[name].parse(value)
                except (KeyError, ValueError):
                    allowed = rules[name].allowed
                    message = f"{_describe(name)} must be {allowed}, not {value!r}"
                    raise ValueError(message) from None
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Values by name, in the order of declaration."""
        return dataclasses.asdict(self)


WAYS = (4, 8, 16, 32)
_WAYS = "entries per group, W"
_NETWORK = "sorting network of each group"
_STALL = "back-pressure and held registers; false: always ready, always moving"
_PIPELINE = "stages after which registers stand; unset: after every second one and the last"


def _sorter_stages(ways: int) -> int:
    """Compare-exchange stages of a sorter: every network offered has the depth of the bitonic."""
    levels = ways.bit_length() - 1
    return levels * (levels + 1) // 2


def _resolve(pipeline: tuple[int, ...] | None, stages: int) -> tuple[int, ...]:
    return pipeline if pipeline is not None else (*range(2, stages, 2), stages)


def _check_pipeline(pipeline: tuple[int, ...] | None, stages: int) -> None:
    if pipeline and pipeline[-1] > stages:
        raise ValueError(f"Pipeline must name stages from 1 to {stages}, not {pipeline!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SorterParameters(Parameters):
    """One parallel sorter: a group of W entries (key, index) in, the same in descending order out.

    Stages are the network's compare-exchange stages, counted from 1.
    """

    ways: int = _choice(16, WAYS, _WAYS)
    key_width: int = _choice(16, (16, 32), "bits of a sort key")
    index_width: int = _integer(16, 1, 32, "bits of an index")
    network: str = _choice("bitonic", NETWORKS, _NETWORK)
    index_tiebreak: bool = _flag(True, "of equal keys the lower index ranks higher")
    pipeline: tuple[int, ...] | None = _stages(None, _PIPELINE)
    stall: bool = _flag(True, _STALL)

    @property
    def stages(self) -> int:
        """Compare-exchange stages from input to output."""
        return _sorter_stages(self.ways)

    @property
    def registers(self) -> tuple[int, ...]:
        """Stages after which registers stand."""
        return _resolve(self.pipeline, self.stages)

    def _check(self) -> None:
        _check_pipeline(self.pipeline, self.stages)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RisParameters(Parameters):
    """Reconfigurable importance sorter (HiKV, IV-B).

    Stages are counted from 1 along the whole path: sorter, one of the merger, picker (at W = 16:
    10 + 1 + 4).
    """

    ways: int = _choice(16, WAYS, _WAYS)
    key_width: int = _choice(16, (16, 32), "bits of a sort key")
    index_width: int = _integer(16, 1, 32, "bits of an index")
    network: str = _choice("bitonic", NETWORKS, _NETWORK)
    index_tiebreak: bool = _flag(True, "of equal keys the lower index ranks higher")
    pipeline: tuple[int, ...] | None = _stages(None, _PIPELINE)
    stall: bool = _flag(True, _STALL)
    tag_width: int = _integer(0, 0, 64, "bits of a tag that travels with each invocation")

    @property
    def merger_stage(self) -> int:
        """Number of the merger's stage; the picker's follow."""
        return _sorter_stages(self.ways) + 1

    @property
    def stages(self) -> int:
        """Stages of the whole path."""
        return self.merger_stage + self.ways.bit_length() - 1

    @property
    def registers(self) -> tuple[int, ...]:
        """Stages after which registers stand."""
        return _resolve(self.pipeline, self.stages)

    def _check(self) -> None:
        _check_pipeline(self.pipeline, self.stages)


_SCORE_FORMAT = "format of the importance score"
_INT_BITS = "integer bits of a ufix score"
_FRAC_BITS = "fraction bits of a ufix score"


def _score_width(score_format: str) -> int:
    """Bits of a stored score and of its sort key; a ``ufix`` code is zero-extended to 32."""
    return 16 if score_format == "fp16" else 32


def _check_fixed_point(int_bits: int, frac_bits: int) -> None:
    if int_bits + frac_bits > 31:
        raise ValueError(
            f"Int bits + frac bits must be at most 31, not {int_bits + frac_bits}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TisgParameters(Parameters):
    """Token importance score generator (HiKV, IV-A): ``lanes`` adders, IS + P each clock."""

    lanes: int = _integer(32, 1, 512, "adders side by side")
    score_format: str = _choice("fp16", SCORE_FORMATS, _SCORE_FORMAT)
    int_bits: int = _integer(10, 1, 16, _INT_BITS)
    frac_bits: int = _integer(21, 1, 24, _FRAC_BITS)
    adder_registers: int = _choice(0, (0, 1), "register stages inside the adder")
    stall: bool = _flag(True, _STALL)

    @property
    def score_width(self) -> int:
        """Bits of a stored score; a ``ufix`` code is zero-extended to 32."""
        return _score_width(self.score_format)

    def _check(self) -> None:
        _check_fixed_point(self.int_bits, self.frac_bits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionParameters(Parameters):
    """Selection of the ``b_ii`` highest of each vector (HiKV, IV-D), a RIS and its sequencer."""

    head_dim: int = _integer(128, 4, 512, "entries of Q, and of a chunk of P: d_h")
    ways: int = _choice(16, WAYS, _WAYS)
    key_width: int = _choice(16, (16, 32), "bits of a sort key")
    network: str = _choice("bitonic", NETWORKS, _NETWORK)
    pipeline: tuple[int, ...] | None = _stages(None, "register stages of the RIS, as there")
    max_length: int = _integer(1024, 4, 65536, "entries of the longest P")
    vectors_in_flight: int = _integer(8, 1, 32, "vectors or chunks held at once")
    tag_width: int = _integer(8, 1, 32, "bits of a command's tag")
    index_lanes: int = _integer(4, 0, 16, "indices per clock of the index stream; 0: none")

    @property
    def groups(self) -> int:
        """Groups of W that one chunk fills."""
        return -(-self.head_dim // self.ways)

    def _check(self) -> None:
        if self.groups > 16:
            raise ValueError(
                f"Head dim must be at most 16 times ways ({16 * self.ways}), not {self.head_dim}"
            )
        if self.max_length < self.head_dim:
            raise ValueError(
                f"Max length must be at least head dim ({self.head_dim}), not {self.max_length}"
            )
        self.ris()

    def ris(self) -> RisParameters:
        """Parameters of the sorter inside."""
        return RisParameters(
            ways=self.ways,
            key_width=self.key_width,
            index_width=max(1, (self.head_dim - 1).bit_length()),
            network=self.network,
            pipeline=self.pipeline,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HikvParameters(Parameters):
    """HiKV's cache of one KV head (HiKV, III), as the golden model runs it."""

    head_dim: int = _integer(128, 4, 512, "elements of Q, K, V, and slots of a chunk of P: d_h")
    cap_recent: int = _integer(512, 1, 1 << 20, "tokens of the recent bank")
    cap_important: int = _integer(512, 0, 1 << 20, "tokens of the important bank")
    b_iik: int = _integer(37, 0, 512, "dimensions of Q that scores use")
    b_iiv: int = _integer(37, 0, 512, "slots of each chunk of P whose V is used")
    grouping: str = _choice("union", GROUPINGS, "selections of the query heads of one group")
    unselected: str = _choice("drop", UNSELECTED, "what stands for V rows that are not selected")
    slot_order: str = _choice("interleaved", SLOT_ORDERS, "slots of the prompt's tokens")
    score_format: str = _choice("fp16", SCORE_FORMATS, _SCORE_FORMAT)

    def _check(self) -> None:
        for name in ("b_iik", "b_iiv"):
            if (value := getattr(self, name)) > self.head_dim:
                raise ValueError(
                    f"{_describe(name)} must be at most head dim ({self.head_dim}), not {value}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreboardParameters(Parameters):
    """Scoreboard (HiKV, IV-A): both banks of many contexts, their scores and slots.

    The memories are dimensioned for ``contexts`` times the two capacities; a head budget table
    divides them among the contexts at run time.
    """

    contexts: int = _integer(32, 1, 256, "contexts resident at once")
    cap_recent: int = _integer(512, 1, 16384, "mean capacity of the recent banks")
    cap_important: int = _integer(512, 0, 16384, "mean capacity of the important banks")
    max_slots: int = _integer(1024, 1, 32768, "most slots of one context")
    ways: int = _choice(16, WAYS, "entries per heap node, W")
    lanes: int = _choice(32, (4, 8, 16, 32, 64), "scores per row, and weights per beat of P")
    score_format: str = _choice("fp16", SCORE_FORMATS, _SCORE_FORMAT)
    int_bits: int = _integer(10, 1, 16, _INT_BITS)
    frac_bits: int = _integer(21, 1, 24, _FRAC_BITS)
    network: str = _choice("bitonic", NETWORKS, _NETWORK)
    pipeline: tuple[int, ...] | None = _stages(None, "register stages of the RIS, as there")
    adder_registers: int = _choice(0, (0, 1), "register stages inside the score adder")
    tag_width: int = _integer(8, 1, 32, "bits of a command's tag")
    parity: bool = _flag(False, "a parity bit per row of every memory")
    storage: str = _choice("array", ("array", "registers"), "memories, or flip-flops if small")

    @property
    def score_width(self) -> int:
        """Bits of a stored score and of a sort key."""
        return _score_width(self.score_format)

    @property
    def slot_width(self) -> int:
        """Bits of a slot number."""
        return max(1, (self.max_slots - 1).bit_length())

    @property
    def heap_rows(self) -> int:
        """Heap nodes of all contexts together."""
        return max(2, self.contexts * -(-self.cap_important // self.ways))

    @property
    def score_rows(self) -> int:
        """Rows of ``lanes`` scores of all contexts together, an even number."""
        rows = self.contexts * -(-(self.cap_recent + self.cap_important) // self.lanes)
        return max(4, rows + rows % 2)

    @property
    def ring_places(self) -> int:
        """Places of all recent banks together."""
        return max(2, self.contexts * self.cap_recent)

    @property
    def ring_rows(self) -> int:
        """Rows of ``lanes`` places of all recent banks together."""
        return max(2, self.contexts * -(-self.cap_recent // self.lanes))

    def _check(self) -> None:
        _check_fixed_point(self.int_bits, self.frac_bits)
        if self.max_slots < self.cap_recent + self.cap_important:
            raise ValueError(
                "Max slots must be at least cap recent + cap important"
                f" ({self.cap_recent + self.cap_important}), not {self.max_slots}"
            )
        if self.lanes * self.score_width < 5 * self.max_slots.bit_length():
            raise ValueError(
                "Lanes must be such that five counts of slots fit in a row of scores, at least 8"
                f" above 4095 slots, not {self.lanes}"
            )
        self.ris()

    def ris(self) -> RisParameters:
        """Parameters of the sorter that the heap needs."""
        return RisParameters(
            ways=self.ways,
            key_width=self.score_width,
            index_width=self.slot_width,
            network=self.network,
            pipeline=self.pipeline,
        )

    def tisg(self) -> TisgParameters:
        """Parameters of the score adders."""
        return TisgParameters(
            lanes=self.lanes,
            score_format=self.score_format,
            int_bits=self.int_bits,
            frac_bits=self.frac_bits,
            adder_registers=self.adder_registers,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HikvSelectorParameters(ScoreboardParameters):
    """HiKV selector (HiKV, IV-A): scoreboard, selection of K elements and V slots, one sorter."""

    head_dim: int = _integer(128, 4, 512, "elements of Q, and slots of a chunk of P: d_h")
    queries: int = _integer(8, 1, 16, "most query heads of one group")
    vectors_in_flight: int = _integer(10, 1, 32, "vectors or chunks in the selection at once")
    steps_in_flight: int = _integer(8, 2, 32, "steps answered whose Q or P is still to come")
    index_lanes: int = _integer(4, 0, 16, "indices per clock of the index streams; 0: none")

    @property
    def chunks(self) -> int:
        """Chunks of the longest P."""
        return -(-self.max_slots // self.head_dim)

    def _check(self) -> None:
        super()._check()
        if self.head_dim % self.ways:
            raise ValueError(
                f"Head dim must be a multiple of ways ({self.ways}), not {self.head_dim}"
            )
        if self.lanes % self.ways:
            raise ValueError(f"Lanes must be a multiple of ways ({self.ways}), not {self.lanes}")
        self.selection()

    def scoreboard(self) -> ScoreboardParameters:
        """Parameters of the scoreboard inside."""
        names = [field.name for field in dataclasses.fields(ScoreboardParameters)]
        return ScoreboardParameters(**{name: getattr(self, name) for name in names})

    def selection(self) -> SelectionParameters:
        """Parameters of the selection inside; P comes to it chunk by chunk."""
        return SelectionParameters(
            head_dim=self.head_dim,
            ways=self.ways,
            network=self.network,
            pipeline=self.pipeline,
            max_length=self.head_dim,
            vectors_in_flight=self.vectors_in_flight,
            tag_width=self.tag_width,
            index_lanes=self.index_lanes,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HikvSelectorAxiParameters(HikvSelectorParameters):
    """HiKV selector with AXI4-Stream and AXI4-Lite ports."""

    clock_enable: bool = _flag(True, "the selector's registers hold while it has nothing to do")
    sideband_width: int = _integer(0, 0, 256, "bits of memory_sideband; 0: no such port")

    def selector(self) -> HikvSelectorParameters:
        """Parameters of the selector inside."""
        names = [field.name for field in dataclasses.fields(HikvSelectorParameters)]
        return HikvSelectorParameters(**{name: getattr(self, name) for name in names})
