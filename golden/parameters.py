"""Parameter classes of every block: the one place where a default or a legal range lives."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

__all__ = [
    "NETWORKS",
    "SCORE_FORMATS",
    "Parameters",
    "RisParameters",
    "SelectionParameters",
    "SorterParameters",
    "TisgParameters",
]

NETWORKS = ("bitonic", "odd_even_merge", "size_optimal")
SCORE_FORMATS = ("fp16", "fp32", "ufix")


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TisgParameters(Parameters):
    """Token importance score generator (HiKV, IV-A): ``lanes`` adders, IS + P each clock."""

    lanes: int = _integer(32, 1, 512, "adders side by side")
    score_format: str = _choice("fp16", SCORE_FORMATS, "format of the importance score")
    int_bits: int = _integer(10, 1, 16, "integer bits of a ufix score")
    frac_bits: int = _integer(21, 1, 24, "fraction bits of a ufix score")
    adder_registers: int = _choice(0, (0, 1), "register stages inside the adder")
    stall: bool = _flag(True, _STALL)

    @property
    def score_width(self) -> int:
        """Bits of a stored score; a ``ufix`` code is zero-extended to 32."""
        return 16 if self.score_format == "fp16" else 32

    def _check(self) -> None:
        if self.int_bits + self.frac_bits > 31:
            total = self.int_bits + self.frac_bits
            raise ValueError(f"Int bits + frac bits must be at most 31, not {total}")


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
