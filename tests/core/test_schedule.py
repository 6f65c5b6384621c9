import pytest

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.composition.schedule import compile_schedule
from rlgym_llm.errors import ConfigError


@pytest.mark.parametrize(
    ("schedule", "points"),
    [
        ({"linear": [1.0, 0.0, 2000]}, {0: 1.0, 500: 0.75, 2000: 0.0, 9000: 0.0}),
        ({"linear": [0.0, 2.0, 4]}, {0: 0.0, 1: 0.5, 4: 2.0}),
        ({"cosine": [1.0, 0.0, 100]}, {0: 1.0, 50: 0.5, 100: 0.0, 200: 0.0}),
        ({"steps": {10: 0.5, 20: 0.0}}, {0: 1.0, 9: 1.0, 10: 0.5, 19: 0.5, 20: 0.0}),
        ({"steps": {"0": 3.0}}, {0: 3.0, 5: 3.0}),  # YAML and JSON write keys as text
    ],
)
def test_values(schedule, points):
    factor = compile_schedule(schedule)
    assert {step: factor(step) for step in points} == pytest.approx(points, abs=1e-12)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"liner": [1, 0, 5]}, "did you mean 'linear'"),
        ({"linear": [1, 0]}, "takes"),
        ({"linear": [1, 0, 0]}, "at least 1 step"),
        ({"steps": {}}, "takes"),
        ({"steps": {"soon": 1.0}}, "whole steps"),
        ({}, "no single"),
    ],
)
def test_what_is_wrong_is_said(schedule, message):
    with pytest.raises(ConfigError, match=message):
        compile_schedule(schedule)


def test_a_schedule_multiplies_the_weight_of_training():
    component = ComponentConfig(reward="prm", weight=0.3, schedule={"linear": [1, 0, 10]})
    assert component.weight_in(evaluation=False, step=5) == pytest.approx(0.15)
    assert component.weight_in(evaluation=False) == 0.3
    assert component.weight_in(evaluation=True, step=5) == 0.3
    of_eval = component.model_copy(update={"eval_weight": 1.0})
    assert of_eval.weight_in(evaluation=True, step=5) == 1.0
