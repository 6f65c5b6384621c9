from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.secrets_mask import is_secret_name, mask_secrets


def test_defaults() -> None:
    config = TrainConfig()
    assert (config.env.id, config.model.path, config.rewards) == ("math-gsm8k", None, None)
    assert (config.data.train_batch_size, config.rollout.n) == (32, 8)
    assert (config.algorithm.adv_estimator, config.actor.policy_loss) == ("grpo", "ppo_clip")
    assert config.trainer.logger == ("console",)
    assert config == TrainConfig.model_validate({})


def test_frozen_and_closed() -> None:
    config = TrainConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.actor.clip_ratio = 0.3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        TrainConfig.model_validate({"actor": {"clip_ration": 0.3}})


@pytest.mark.parametrize(
    ("section", "given"),
    [
        ("rollout", {"n": True}),
        ("rollout", {"n": 8.0}),
        ("rollout", {"n": "8"}),
        ("rollout", {"n": 0}),
        ("rollout", {"temperature": 0}),
        ("rollout", {"top_p": 1.1}),
        ("rollout", {"top_k": 0}),
        ("rollout", {"stop": "</answer>"}),
        ("rollout", {"stop": ["</answer>", ""]}),
        ("rollout", {"stop_token_ids": [-1]}),
        ("rollout", {"val_kwargs": {"temperature": 0.7}}),
        ("rollout", {"val_kwargs": {"n": 4}}),
        ("rollout", {"val_kwargs": {"do_sample": True}}),
        ("rollout", {"val_kwargs": {"do_sample": True, "temperature": 1, "top_k": 0}}),
        ("actor", {"clip_ratio": "0.2"}),
        ("actor", {"clip_ratio": True}),
        ("actor", {"clip_ratio_c": 1.0}),
        ("actor", {"optim": {"lr": float("nan")}}),
        ("actor", {"optim": {"betas": [0.9, 1.0]}}),
        ("actor", {"loss_agg_mode": "mean"}),
        ("trainer", {"test_freq": 0}),
        ("trainer", {"seed": -1}),
        ("trainer", {"experiment_name": 42}),
        ("data", {"truncation": "left"}),
        ("data", {"val_max_samples": 0}),
    ],
)
def test_refused(section: str, given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrainConfig.model_validate({section: given})


def test_clip_bounds_that_count() -> None:
    def bounds(**actor: float) -> tuple[float | None, float | None]:
        config = TrainConfig.model_validate({"actor": actor})
        return config.actor.clip_low, config.actor.clip_high

    assert bounds() == (None, None)
    assert bounds(clip_ratio=0.1) == (0.1, 0.1)
    assert bounds(clip_ratio_high=0.28) == (None, 0.28)
    assert bounds(clip_ratio=0.1, clip_ratio_low=0.0, clip_ratio_high=0.3) == (0.0, 0.3)


def test_a_ratio_on_a_kl_term_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValidationError, match="kl_loss_unbiased has no effect without use_kl_loss"):
        TrainConfig.model_validate({"actor": {"kl_loss_unbiased": True}})
    given = {"kl_loss_unbiased": True, "use_kl_loss": True}
    assert TrainConfig.model_validate({"actor": given}).actor.kl_loss_unbiased


def test_validation_may_cut_the_distribution() -> None:
    val_kwargs = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "n": 4}
    config = TrainConfig.model_validate({"rollout": {"val_kwargs": val_kwargs}})
    assert config.rollout.val_kwargs.top_p == 0.8


def test_dumps_and_representations_hold_no_secret() -> None:
    options = {"url": "http://judge", "headers": {"Authorization": "Bearer zzz"}, "max_tokens": 5}
    config = TrainConfig.model_validate(
        {
            "env": {"kwargs": {"api_key": "KEY-abc123", "few_shot": 2}},
            "rewards": {"components": {"judge": {"options": options}}},
        }
    )
    for text in (repr(config), str(config), f"{config.model_dump()}", config.model_dump_json()):
        assert "zzz" not in text
        assert "KEY-abc123" not in text
        assert "http://judge" in text
    # The object itself keeps them: it is what builds the environment, here or in a worker.
    assert config.env.kwargs["api_key"] == "KEY-abc123"
    assert pickle.loads(pickle.dumps(config)) == config


def test_secret_names() -> None:
    secret = ("api_key", "OPENAI_API_KEY", "wandb_key", "hf-token", "password", "token")
    plain = ("max_tokens", "eos_token", "prompt_key", "reward_fn_key", "keyword", "monkey")
    assert [name for name in (*secret, *plain) if is_secret_name(name)] == list(secret)
    assert mask_secrets({"secret": {"a": ["x", 3, None]}}) == {"secret": {"a": ["***", 3, None]}}
