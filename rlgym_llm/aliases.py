"""The one table of other spellings: verl's full paths and the short forms, to our keys.

A spelling is resolved the same way on the command line and in a file.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ALIASES",
    "CUSTOM_REWARD_KEYS",
    "NO_NEWS",
    "OTHER_NAMES",
    "UNSUPPORTED",
    "VALUE_ALIASES",
    "VERL_PREFIX",
    "unsupported_reason",
    "without_alias",
    "without_value_alias",
]

VERL_PREFIX = "actor_rollout_ref."
"""verl's root above ``model``, ``actor``, ``rollout`` and ``ref``: the keys below are ours."""

ALIASES: Mapping[str, str] = {
    # short forms
    "env": "env.id",
    "model": "model.path",
    "output": "trainer.output",
    "seed": "trainer.seed",
    # verl's paths that differ from ours by more than `actor_rollout_ref.`
    "data.train_files": "data.train",
    "data.val_files": "data.val",
    "trainer.default_local_dir": "trainer.output",
    "actor.optim.warmup_style": "actor.optim.lr_scheduler_type",
    "actor.policy_loss.loss_mode": "actor.policy_loss",
}
"""Other spelling to our key; ``actor_rollout_ref.`` is taken off first."""

VALUE_ALIASES: Mapping[str, Mapping[str, str]] = {
    "actor.policy_loss": {"vanilla": "ppo_clip", "geo_mean": "gmpo"},
    "algorithm.adv_estimator": {"grpo_vectorized": "grpo", "rloo_vectorized": "rloo"},
    "algorithm.filter_groups.metric": {"seq_reward": "reward"},
}
"""Our key to verl's names of its values, and ours."""

CUSTOM_REWARD_KEYS = (
    "custom_reward_function.path",
    "custom_reward_function.name",
    "custom_reward_function.reward_kwargs",
)
"""verl's keys for a reward function of one's own: together they make one ``function`` reward."""

UNSUPPORTED: Mapping[str, str] = {
    "actor.fsdp_config.fsdp_size": "sharding over some of the ranks (it is over all of them)",
    "actor.fsdp_config.forward_prefetch": "prefetching (it is always on)",
    "actor.fsdp_config.wrap_policy": "a choice of what is sharded (each decoder layer is)",
    "actor.ppo_micro_batch_size": "a micro-batch size over all ranks "
    "(actor.ppo_micro_batch_size_per_gpu counts sequences on one rank)",
    "actor.strategy": "sharding",
    "actor.ulysses_sequence_parallel_size": "sequence parallelism",
    "algorithm.filter_groups.max_inflight_gen_batches": "a bound on batches in flight "
    "(rollout.max_staleness is that)",
    "critic.forward_micro_batch_size_per_gpu": "another batch for the critic's values than for its "
    "update (critic.ppo_micro_batch_size_per_gpu)",
    "critic.model.fsdp_config": "sharding of the critic's own (it is sharded as the actor is)",
    "critic.ppo_max_token_len_per_gpu": "dynamic batches of the critic's own (it follows "
    "actor.ppo_max_token_len_per_gpu)",
    "critic.ppo_micro_batch_size": "a micro-batch size over all ranks "
    "(critic.ppo_micro_batch_size_per_gpu counts sequences on one rank)",
    "critic.strategy": "sharding",
    "critic.use_dynamic_bsz": "dynamic batches of the critic's own (actor.use_dynamic_bsz)",
    "data.val_batch_size": "validation batches (rollout.max_num_seqs bounds what is sampled at "
    "once)",
    "model.use_fused_kernels": "fused kernels",
    "model.use_liger": "fused kernels",
    "model.use_remove_padding": "packed sequences",
    "ray_init": "Ray",
    "ref.fsdp_config": "sharding of the reference's own (it is sharded as the actor is)",
    "ref.log_prob_micro_batch_size": "a micro-batch size over all ranks "
    "(ref.log_prob_micro_batch_size_per_gpu counts sequences on one rank)",
    "reward_model": "reward models",
    "rollout.calculate_log_probs": "a choice (log-probs are always the generator's)",
    "rollout.free_cache_engine": "vLLM",
    "rollout.log_prob_max_token_len_per_gpu": "old log-probs in batches of their own (they are "
    "taken in those of ref.log_prob_max_token_len_per_gpu)",
    "rollout.log_prob_micro_batch_size_per_gpu": "old log-probs of another pass than the "
    "generator's",
    "rollout.log_prob_use_dynamic_bsz": "old log-probs in batches of their own "
    "(ref.log_prob_use_dynamic_bsz)",
    "rollout.logprobs_mode": "a choice (log-probs are of the tempered distribution)",
    "rollout.mode": "a choice of server (rollout.num_workers and rollout.max_staleness say how)",
    "rollout.multi_turn": "multi-turn rollouts",
    "trainer.n_gpus_per_node": "several ranks (torchrun --nproc-per-node says how many)",
    "trainer.nnodes": "several ranks (torchrun --nnodes says how many machines)",
}
"""Keys of verl that have no effect here yet, and what they are about; a key covers those below."""

NO_NEWS: Mapping[str, str] = {"trainer.n_gpus_per_node": "1", "trainer.nnodes": "1"}
"""Keys among these that verl's scripts give, and the one value that is so anyway: it is taken."""

OTHER_NAMES: Mapping[str, str] = {
    "batch_size": "data.train_batch_size",
    "epsilon": "actor.clip_ratio",
    "epsilon_high": "actor.clip_ratio_high",
    "gradient_checkpointing": "model.enable_gradient_checkpointing",
    "group_size": "rollout.n",
    "learning_rate": "actor.optim.lr",
    "loss_type": "actor.loss_agg_mode",
    "lr": "actor.optim.lr",
    "max_completion_length": "data.max_response_length",
    "max_grad_norm": "actor.grad_clip",
    "max_steps": "trainer.total_training_steps",
    "num_generations": "rollout.n",
    "num_iterations": "actor.ppo_epochs",
    "num_train_epochs": "trainer.total_epochs",
    "output_dir": "trainer.output",
    "report_to": "trainer.logger",
    "reward_funcs": "rewards",
    "run_name": "trainer.experiment_name",
    "reward": "rewards",
    "resume_from_checkpoint": "trainer.resume_from_path",
    "save_steps": "trainer.save_freq",
    "save_total_limit": "trainer.max_actor_ckpt_to_keep",
    "scale_rewards": "algorithm.norm_adv_by_std_in_grpo",
    "steps": "trainer.total_training_steps",
    "total_steps": "trainer.total_training_steps",
    "use_bias_correction_kl": "actor.kl_loss_unbiased",
    "warmup_steps": "actor.optim.lr_warmup_steps",
}
"""What other trainers call some keys. Never accepted: they only make the hint of an error."""


def without_alias(spelling: str) -> str:
    """Our key for a spelling of it, which is the spelling itself where no alias is known.

    >>> without_alias("actor_rollout_ref.rollout.n"), without_alias("data.train_files")
    ('rollout.n', 'data.train')
    """
    key = spelling.removeprefix(VERL_PREFIX)
    return ALIASES.get(key, key)


def without_value_alias(key: str, value: str) -> str:
    """Our name of a key's value, which is the value itself where no alias is known.

    >>> without_value_alias("actor.policy_loss", "vanilla")
    'ppo_clip'
    """
    return VALUE_ALIASES.get(key, {}).get(value, value)


def unsupported_reason(key: str) -> str | None:
    """What a key of verl's is about that this version lacks, or None for any other key.

    >>> unsupported_reason("critic.strategy")
    'sharding'
    """
    parts = key.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((UNSUPPORTED[prefix] for prefix in prefixes if prefix in UNSUPPORTED), None)
