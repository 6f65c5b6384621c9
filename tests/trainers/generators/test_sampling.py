"""Drawing tokens: the inverse cumulative distribution, by hand and in the mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.generators.sampling import draw_tokens, keep_top, row_noise

LOGITS = torch.tensor([[0.2, 0.5, 0.3]]).log()


def draw(noise: float, temperature: float = 1.0) -> tuple[int, float]:
    ids, logprobs = draw_tokens(
        LOGITS, torch.tensor([noise], dtype=torch.float64), torch.tensor([temperature])
    )
    return int(ids), float(logprobs)


@pytest.mark.parametrize(
    ("noise", "token"), [(0.0, 0), (0.19, 0), (0.21, 1), (0.69, 1), (0.71, 2), (1 - 1e-12, 2)]
)
def test_noise_picks_the_token_whose_share_it_falls_in(noise, token):
    assert draw(noise)[0] == token


def test_logprob_is_of_the_sampling_distribution():
    # At temperature 0.5 the probabilities are squared and renormalised: .04, .25, .09 of .38.
    token, logprob = draw(0.5, temperature=0.5)
    assert token == 1
    assert logprob == pytest.approx(math.log(0.25 / 0.38), abs=1e-6)


def test_temperature_zero_takes_the_likeliest_and_reports_temperature_one():
    token, logprob = draw(0.99, temperature=0.0)
    assert token == 1
    assert logprob == pytest.approx(math.log(0.5), abs=1e-6)


def test_frequencies_follow_the_probabilities():
    noise = torch.from_numpy(row_noise(0, 20_000))
    ids, _ = draw_tokens(LOGITS.expand(20_000, 3), noise, torch.ones(20_000))
    shares = np.bincount(ids.numpy(), minlength=3) / 20_000
    # Three standard deviations of a share of one half over 20,000 draws are 0.0106.
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.011)


def test_noise_depends_on_the_seed_alone():
    assert np.array_equal(row_noise(5, 8), row_noise(5, 16)[:8])
    assert not np.array_equal(row_noise(5, 8), row_noise(6, 8))


def test_impossible_tokens_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(3, 3)
    noise = torch.tensor([0.0, 0.5, 1 - 1e-16], dtype=torch.float64)
    ids, _ = draw_tokens(logits, noise, torch.ones(3))
    assert ids.tolist() == [1, 1, 1]


@pytest.mark.data
def test_keep_top_p_keeps_the_smallest_set_that_reaches_the_mass(bug_report):
    case = bug_report("logprob-top_p_renormalisation")
    logits = torch.tensor([case["input"]["probs"]]).log()
    kept = keep_top(logits, top_p=case["input"]["top_p"])
    assert torch.isfinite(kept).tolist() == [[True, True, False, False]]
    engine = torch.log_softmax(kept, -1)[0, case["input"]["sampled"]]
    assert float(engine) == pytest.approx(case["right"]["values"]["engine_logp"], abs=1e-6)


def test_keep_top_k():
    kept = keep_top(torch.tensor([[1.0, 3.0, 2.0]]), top_k=2)
    assert torch.isfinite(kept).tolist() == [[False, True, True]]
