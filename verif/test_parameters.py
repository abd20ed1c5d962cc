"""Every parameter class: defaults, ranges, messages, and reading from text."""

import dataclasses
import re

import pytest

from golden.parameters import (
    RisParameters,
    SelectionParameters,
    SorterParameters,
    TisgParameters,
)

CLASSES = [SorterParameters, RisParameters, TisgParameters, SelectionParameters]

WAYS = "Ways must be one of 4, 8, 16, 32, not "
KEY_WIDTH = "Key width must be one of 16, 32, not "
INDEX_WIDTH = "Index width must be an integer from 1 to 32, not "
NETWORK = "Network must be one of bitonic, odd_even_merge, size_optimal, not "
TIEBREAK = "Index tiebreak must be true or false, not "
STALL = "Stall must be true or false, not "
PIPELINE = "Pipeline must be stage numbers from 1 in increasing order, not "
TAG_WIDTH = "Tag width must be an integer from {} to {}, not "
LANES = "Lanes must be an integer from 1 to 512, not "
SCORE_FORMAT = "Score format must be one of fp16, fp32, ufix, not "
INT_BITS = "Int bits must be an integer from 1 to 16, not "
FRAC_BITS = "Frac bits must be an integer from 1 to 24, not "
ADDER_REGISTERS = "Adder registers must be one of 0, 1, not "
HEAD_DIM = "Head dim must be an integer from 4 to 512, not "
MAX_LENGTH = "Max length must be an integer from 4 to 65536, not "
IN_FLIGHT = "Vectors in flight must be an integer from 1 to 32, not "
INDEX_LANES = "Index lanes must be an integer from 0 to 16, not "


def sorting(kind):
    """Illegal values that the sorter and what contains one share."""
    return [
        (kind, "ways", 2, WAYS),
        (kind, "ways", 12, WAYS),
        (kind, "ways", 64, WAYS),
        (kind, "ways", 8.0, WAYS),
        (kind, "ways", True, WAYS),
        (kind, "ways", None, WAYS),
        (kind, "key_width", 15, KEY_WIDTH),
        (kind, "key_width", "16", KEY_WIDTH),
        (kind, "network", "bubble", NETWORK),
        (kind, "network", 1, NETWORK),
        (kind, "pipeline", (0,), PIPELINE),
        (kind, "pipeline", (2, 2), PIPELINE),
        (kind, "pipeline", (3, 2), PIPELINE),
        (kind, "pipeline", (1, 2.5), PIPELINE),
        (kind, "pipeline", [1, 2], PIPELINE),
        (kind, "pipeline", 2, PIPELINE),
    ]


def indexed(kind):
    """Illegal values that the sorter and the RIS share."""
    return [
        (kind, "index_width", 0, INDEX_WIDTH),
        (kind, "index_width", 33, INDEX_WIDTH),
        (kind, "index_width", 4.5, INDEX_WIDTH),
        (kind, "index_tiebreak", 1, TIEBREAK),
        (kind, "index_tiebreak", None, TIEBREAK),
        (kind, "stall", 0, STALL),
        (kind, "stall", "true", STALL),
    ]


ILLEGAL = [
    *sorting(SorterParameters),
    *sorting(RisParameters),
    *sorting(SelectionParameters),
    *indexed(SorterParameters),
    *indexed(RisParameters),
    (RisParameters, "tag_width", -1, TAG_WIDTH.format(0, 64)),
    (RisParameters, "tag_width", 65, TAG_WIDTH.format(0, 64)),
    (RisParameters, "tag_width", False, TAG_WIDTH.format(0, 64)),
    (TisgParameters, "lanes", 0, LANES),
    (TisgParameters, "lanes", 513, LANES),
    (TisgParameters, "lanes", "32", LANES),
    (TisgParameters, "score_format", "bf16", SCORE_FORMAT),
    (TisgParameters, "score_format", 16, SCORE_FORMAT),
    (TisgParameters, "int_bits", 0, INT_BITS),
    (TisgParameters, "int_bits", 17, INT_BITS),
    (TisgParameters, "int_bits", 10.0, INT_BITS),
    (TisgParameters, "frac_bits", 0, FRAC_BITS),
    (TisgParameters, "frac_bits", 25, FRAC_BITS),
    (TisgParameters, "frac_bits", None, FRAC_BITS),
    (TisgParameters, "adder_registers", 2, ADDER_REGISTERS),
    (TisgParameters, "adder_registers", True, ADDER_REGISTERS),
    (TisgParameters, "stall", 1, STALL),
    (SelectionParameters, "head_dim", 3, HEAD_DIM),
    (SelectionParameters, "head_dim", 513, HEAD_DIM),
    (SelectionParameters, "head_dim", 64.0, HEAD_DIM),
    (SelectionParameters, "max_length", 3, MAX_LENGTH),
    (SelectionParameters, "max_length", 65537, MAX_LENGTH),
    (SelectionParameters, "max_length", "1024", MAX_LENGTH),
    (SelectionParameters, "vectors_in_flight", 0, IN_FLIGHT),
    (SelectionParameters, "vectors_in_flight", 33, IN_FLIGHT),
    (SelectionParameters, "vectors_in_flight", None, IN_FLIGHT),
    (SelectionParameters, "tag_width", 0, TAG_WIDTH.format(1, 32)),
    (SelectionParameters, "tag_width", 33, TAG_WIDTH.format(1, 32)),
    (SelectionParameters, "tag_width", 8.0, TAG_WIDTH.format(1, 32)),
    (SelectionParameters, "index_lanes", -1, INDEX_LANES),
    (SelectionParameters, "index_lanes", 17, INDEX_LANES),
    (SelectionParameters, "index_lanes", True, INDEX_LANES),
]

RELATIONS = [
    (
        SorterParameters,
        dict(ways=4, pipeline=(1, 4)),
        "Pipeline must name stages from 1 to 3, not (1, 4)",
    ),
    (
        RisParameters,
        dict(ways=4, pipeline=(7,)),
        "Pipeline must name stages from 1 to 6, not (7,)",
    ),
    (
        TisgParameters,
        dict(int_bits=16, frac_bits=16),
        "Int bits + frac bits must be at most 31, not 32",
    ),
    (
        SelectionParameters,
        dict(ways=4, head_dim=65),
        "Head dim must be at most 16 times ways (64), not 65",
    ),
    (
        SelectionParameters,
        dict(head_dim=128, max_length=127),
        "Max length must be at least head dim (128), not 127",
    ),
    (
        SelectionParameters,
        dict(pipeline=(16,)),
        "Pipeline must name stages from 1 to 15, not (16,)",
    ),
]


@pytest.mark.parametrize("kind", CLASSES)
def test_defaults_are_legal(kind):
    assert kind().as_dict() == {row["name"]: row["default"] for row in kind.describe()}


@pytest.mark.parametrize("kind, name, value, message", ILLEGAL)
def test_illegal_value_is_named_with_its_range(kind, name, value, message):
    right_type = {f.name: f.metadata["rule"].type for f in dataclasses.fields(kind)}[name]
    wrong_type = type(value) is not right_type

    with pytest.raises(TypeError if wrong_type else ValueError) as error:
        kind(**{name: value})

    assert str(error.value) == f"{message}{value!r}"


@pytest.mark.parametrize("kind, values, message", RELATIONS)
def test_values_that_do_not_fit_together(kind, values, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        kind(**values)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_parameter_has_an_illegal_value_tested(kind):
    tested = {name for owner, name, _, _ in ILLEGAL if owner is kind}

    assert tested == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    "kind, name, values",
    [
        (SorterParameters, "ways", [4, 8, 16, 32]),
        (SorterParameters, "index_width", [1, 32]),
        (SorterParameters, "pipeline", [None, (), (1,), (10,), tuple(range(1, 11))]),
        (RisParameters, "tag_width", [0, 64]),
        (RisParameters, "pipeline", [(15,)]),
        (TisgParameters, "lanes", [1, 512]),
        (TisgParameters, "int_bits", [1]),
        (TisgParameters, "frac_bits", [1]),
        (SelectionParameters, "head_dim", [4, 256]),
        (SelectionParameters, "max_length", [128, 65536]),
        (SelectionParameters, "vectors_in_flight", [1, 32]),
        (SelectionParameters, "tag_width", [1, 32]),
        (SelectionParameters, "index_lanes", [0, 16]),
    ],
)
def test_ends_of_a_range_are_legal(kind, name, values):
    assert [getattr(kind(**{name: value}), name) for value in values] == values


def test_parameters_are_frozen():
    parameters = SorterParameters()

    with pytest.raises(dataclasses.FrozenInstanceError):
        parameters.__setattr__("ways", 8)


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, SorterParameters()),
        ({"ways": "8"}, SorterParameters(ways=8)),
        ({"ways": "0x8", "stall": "False"}, SorterParameters(ways=8, stall=False)),
        ({"ways": 8, "index_tiebreak": "0"}, SorterParameters(ways=8, index_tiebreak=False)),
        ({"network": "size_optimal"}, SorterParameters(network="size_optimal")),
        ({"pipeline": "2, 10"}, SorterParameters(pipeline=(2, 10))),
        ({"pipeline": "(3,)"}, SorterParameters(pipeline=(3,))),
        ({"pipeline": ""}, SorterParameters(pipeline=())),
        ({"pipeline": [2, 10]}, SorterParameters(pipeline=(2, 10))),
    ],
)
def test_settings_are_parsed(settings, expected):
    assert SorterParameters.parse(settings) == expected


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"depth": "8"},
            "Unknown parameter 'depth': known are ways, key_width, index_width, network, "
            "index_tiebreak, pipeline, stall",
        ),
        ({"ways": "eight"}, f"{WAYS}'eight'"),
        ({"ways": ""}, f"{WAYS}''"),
        ({"ways": "9"}, f"{WAYS}9"),
        ({"stall": "maybe"}, f"{STALL}'maybe'"),
        ({"pipeline": "2,x"}, f"{PIPELINE}'2,x'"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SorterParameters.parse(settings)


@pytest.mark.parametrize("kind", CLASSES)
def test_parameters_survive_as_settings(kind):
    parameters = kind()

    assert kind.parse(parameters.as_dict()) == parameters


@pytest.mark.parametrize(
    "ways, pipeline, stages, registers",
    [
        (4, None, 3, (2, 3)),
        (8, None, 6, (2, 4, 6)),
        (16, None, 10, (2, 4, 6, 8, 10)),
        (32, None, 15, (2, 4, 6, 8, 10, 12, 14, 15)),
        (16, (), 10, ()),
        (16, (3, 7), 10, (3, 7)),
    ],
)
def test_registers_stand_after_every_second_stage_and_the_last(ways, pipeline, stages, registers):
    parameters = SorterParameters(ways=ways, pipeline=pipeline)

    assert (parameters.stages, parameters.registers) == (stages, registers)


@pytest.mark.parametrize(
    "ways, merger, stages", [(4, 4, 6), (8, 7, 10), (16, 11, 15), (32, 16, 21)]
)
def test_ris_stages_count_sorter_merger_and_picker(ways, merger, stages):
    parameters = RisParameters(ways=ways)

    assert (parameters.merger_stage, parameters.stages) == (merger, stages)


@pytest.mark.parametrize("head_dim, ways, groups", [(128, 16, 8), (64, 4, 16), (65, 16, 5)])
def test_groups_of_a_chunk(head_dim, ways, groups):
    assert SelectionParameters(head_dim=head_dim, ways=ways).groups == groups
