from __future__ import annotations

import pytest

from rlgym_llm.aliases import (
    ALIASES,
    OTHER_NAMES,
    UNSUPPORTED,
    VALUE_ALIASES,
    unsupported_reason,
    without_alias,
    without_value_alias,
)
from rlgym_llm.config_keys import config_keys


def test_every_alias_leads_to_a_key() -> None:
    assert set(ALIASES.values()) <= set(config_keys())
    assert set(OTHER_NAMES.values()) <= set(config_keys())


def test_names_of_values_are_of_keys_and_lead_to_ours() -> None:
    assert set(VALUE_ALIASES) <= set(config_keys())
    for key, names in VALUE_ALIASES.items():
        assert not set(names) & set(names.values())  # one step leads to ours
        assert [without_value_alias(key, name) for name in names.values()] == [*names.values()]
    assert without_value_alias("actor.policy_loss", "geo_mean") == "gmpo"
    assert without_value_alias("trainer.logger", "vanilla") == "vanilla"


def test_no_alias_hides_a_key() -> None:
    assert not set(ALIASES) & set(config_keys())


def test_what_exists_is_not_called_unsupported() -> None:
    assert [key for key in config_keys() if unsupported_reason(key)] == []


def test_unsupported_keys_cover_those_below() -> None:
    assert unsupported_reason("reward_model.model.path") == "reward models"
    assert unsupported_reason("reward_models") is None
    assert unsupported_reason("rollout.n") is None
    assert set(UNSUPPORTED) == {key for key in UNSUPPORTED if unsupported_reason(key)}


@pytest.mark.parametrize(
    ("verl", "ours"),
    [
        ("actor_rollout_ref.model.path", "model.path"),
        ("actor_rollout_ref.model.enable_gradient_checkpointing",) * 2,
        ("actor_rollout_ref.actor.optim.lr", "actor.optim.lr"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",) * 2,
        ("actor_rollout_ref.actor.use_kl_loss", "actor.use_kl_loss"),
        ("actor_rollout_ref.actor.kl_loss_type", "actor.kl_loss_type"),
        ("actor_rollout_ref.actor.optim.warmup_style", "actor.optim.lr_scheduler_type"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "actor.policy_loss"),
        ("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",) * 2,
        ("actor_rollout_ref.rollout.n", "rollout.n"),
        ("actor_rollout_ref.rollout.val_kwargs.do_sample", "rollout.val_kwargs.do_sample"),
        ("algorithm.adv_estimator", "algorithm.adv_estimator"),
        ("algorithm.kl_ctrl.kl_coef", "algorithm.kl_ctrl.kl_coef"),
        ("data.train_files", "data.train"),
        ("data.val_files", "data.val"),
        ("data.train_batch_size", "data.train_batch_size"),
        ("trainer.default_local_dir", "trainer.output"),
        ("trainer.total_epochs", "trainer.total_epochs"),
    ],
)
def test_verl_spellings(verl: str, ours: str) -> None:
    key = without_alias(verl)
    assert key == ours.removeprefix("actor_rollout_ref.")
    assert key in config_keys()
