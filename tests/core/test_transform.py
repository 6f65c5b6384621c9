import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.composition.transform import TRANSFORMS, compile_transforms
from rlgym_llm.errors import ConfigError


@pytest.mark.parametrize(
    ("steps", "value", "result"),
    [
        ([{"clip": [-1, 0]}], 0.5, 0.0),
        ([{"scale": -0.01}, {"clip": [-1, 0]}], 50.0, -0.5),
        ([{"clip": [0, 1]}, {"scale": 2}], 5.0, 2.0),  # in order: clipped, then doubled
        ([{"scale": 2}, {"clip": [0, 1]}], 5.0, 1.0),
        ([{"shift": -0.5}], 1.0, 0.5),
        ([{"threshold": 0.7}], 0.7, 1.0),
        ([{"threshold": 0.7}], 0.69, 0.0),
        ([{"tanh": 2}], 2.0, math.tanh(1.0)),
        ([{"sigmoid": 1}], 0.0, 0.5),
        ([{"sigmoid": 1}], math.log(3), 0.75),
        ([{"log1p": 1}], -(math.e - 1), -1.0),
    ],
)
def test_values(steps, value, result):
    assert compile_transforms(steps)(value) == pytest.approx(result, abs=1e-12)


def test_none_is_none():
    assert compile_transforms([]) is None


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["sigmoid", "tanh"]))
def test_squashing_never_overflows(value, name):
    assert -1 <= compile_transforms([{name: 0.5}])(value) <= 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"clp": [0, 1]}, "unknown transform 'clp'; did you mean 'clip'"),
        ({"clip": [1, 0]}, "empty"),
        ({"clip": [0]}, "takes 2 finite numbers"),
        ({"clip": "01"}, "takes 2 finite numbers"),
        ({"scale": float("nan")}, "takes one finite number, got nan"),
        ({"scale": True}, "takes one finite number"),
        ({"tanh": 0}, "above 0"),
        ({"clip": [0, 1], "scale": 2}, "no single {name: argument}"),
        ("clip", "no single {name: argument}"),
    ],
)
def test_what_is_wrong_is_said(step, message):
    with pytest.raises(ConfigError, match=message):
        compile_transforms([step])


def test_every_transform_is_tested_here():
    assert set(TRANSFORMS) == {"clip", "scale", "shift", "threshold", "tanh", "sigmoid", "log1p"}
