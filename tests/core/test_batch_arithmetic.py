from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.batch_arithmetic import BatchPlan, describe, plan_batches
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError


def config(
    *,
    train: int = 32,
    n: int = 8,
    mini: int | None = None,
    micro: int | None = None,
    **more: object,
) -> TrainConfig:
    actor = {"ppo_mini_batch_size": mini, "ppo_micro_batch_size_per_gpu": micro}
    actor |= {key: more.pop(key) for key in ("ppo_epochs", "optim") if key in more}
    return TrainConfig.model_validate(
        {"data": {"train_batch_size": train}, "rollout": {"n": n}, "actor": actor, **more}
    )


@pytest.mark.parametrize(
    ("micro", "accumulation"),
    # 8 ranks x 16 = 128 sequences at once: all of the mini-batch; 8 x 4 = 32 at once: 4 times.
    [(16, 1), (4, 4)],
)
def test_worked_example_of_eight_ranks(micro: int, accumulation: int) -> None:
    plan = plan_batches(config(train=256, n=1, mini=128, micro=micro), dp_size=8)
    assert plan.updates_per_step == 2  # 256 / 128
    assert plan.accumulation_steps == accumulation
    assert (plan.batch_sequences, plan.mini_batch_sequences) == (256, 128)


def test_sequences_are_prompts_times_responses() -> None:
    # 128 prompts x 8 responses = 1024 sequences; 1024 / (8 ranks x 16) = 8 accumulation steps.
    plan = plan_batches(config(train=256, n=8, mini=128, micro=16, ppo_epochs=3), dp_size=8)
    assert plan.mini_batch_sequences == 1024
    assert plan.accumulation_steps == 8
    assert plan.updates_per_step == 6  # 3 passes x 256 / 128


def test_defaults_fit_one_rank() -> None:
    plan = plan_batches(TrainConfig(), num_prompts=1000)
    # 32 x 8 = 256 sequences, 32 at a time; 1000 prompts hold 31 batches of 32 and 8 prompts more.
    assert (plan.batch_sequences, plan.mini_batch_prompts, plan.micro_batch_size) == (256, 32, 32)
    assert (plan.accumulation_steps, plan.updates_per_step) == (8, 1)
    assert (plan.steps_per_epoch, plan.total_steps, plan.num_left_out) == (31, 31, 8)
    assert plan.reference_batch_size == 32


def test_default_micro_batch_divides() -> None:
    assert plan_batches(config(train=10, n=3)).micro_batch_size == 30  # 30 fits as it is
    assert plan_batches(config(train=10, n=10)).micro_batch_size == 25  # of 100, at most 32
    assert plan_batches(config(train=67, n=1)).micro_batch_size == 1  # a prime above 32


def test_reference_batch_need_not_divide() -> None:
    plan = plan_batches(config(ref={"log_prob_micro_batch_size_per_gpu": 100}))
    assert plan.reference_batch_size == 100


@pytest.mark.parametrize(
    ("kwargs", "dp_size", "message"),
    [
        (
            {"train": 256, "mini": 100},
            1,
            "--actor.ppo_mini_batch_size 100 does not divide --data.train_batch_size 256; "
            "the nearest that does is 128",
        ),
        (
            {"train": 32, "mini": 64},
            1,
            "--actor.ppo_mini_batch_size 64 does not divide --data.train_batch_size 32; "
            "the nearest that does is 32",
        ),
        (
            {"train": 32, "n": 8, "micro": 60},
            1,
            "--actor.ppo_micro_batch_size_per_gpu 60 does not divide the 256 sequences that a rank "
            "has in a mini-batch (32 prompts times --rollout.n 8 over 1 rank); the nearest that "
            "does is 64",
        ),
        (
            {"train": 32, "n": 1, "micro": 16},
            4,
            "--actor.ppo_micro_batch_size_per_gpu 16 does not divide the 8 sequences that a rank "
            "has in a mini-batch (32 prompts times --rollout.n 1 over 4 ranks); the nearest that "
            "does is 8",
        ),
        (
            {"train": 6, "n": 1},
            4,
            "the 6 sequences of a mini-batch (--actor.ppo_mini_batch_size 6 times --rollout.n 1) "
            "do not spread evenly over 4 ranks",
        ),
    ],
)
def test_indivisible_sizes_name_the_nearest(
    kwargs: dict[str, int], dp_size: int, message: str
) -> None:
    with pytest.raises(ConfigError) as wrong:
        plan_batches(config(**kwargs), dp_size=dp_size)
    assert str(wrong.value) == message


def test_too_few_prompts() -> None:
    with pytest.raises(ConfigError, match="32 is more than the 31 training prompts"):
        plan_batches(TrainConfig(), num_prompts=31)
    only_validation = config(trainer={"val_only": True})
    assert plan_batches(only_validation, num_prompts=31).total_steps == 0


def test_steps_of_the_run() -> None:
    epochs = config(trainer={"total_epochs": 3})
    assert plan_batches(epochs, num_prompts=70).total_steps == 6  # 3 epochs of 2 whole batches
    assert plan_batches(epochs).total_steps is None
    assert plan_batches(epochs).num_updates is None
    fixed = config(trainer={"total_training_steps": 5}, mini=16)
    assert plan_batches(fixed, num_prompts=70).total_steps == 5
    assert plan_batches(fixed).num_updates == 10  # 2 mini-batches a step


def test_warmup_longer_than_the_run() -> None:
    long = config(optim={"lr_warmup_steps": 7}, trainer={"total_epochs": 3})
    assert plan_batches(long).total_steps is None  # not known yet, so nothing to refuse
    with pytest.raises(ConfigError, match="lr_warmup_steps 7 is more than the run's 6 optimizer"):
        plan_batches(long, num_prompts=70)


def test_describe_prints_the_arithmetic() -> None:
    plan = plan_batches(config(train=256, n=8, mini=128, micro=16), dp_size=8, num_prompts=7473)
    assert describe(plan).splitlines() == [
        "batch        256 prompts x 8 = 2,048 sequences a step",
        "mini-batch   128 prompts x 8 = 1,024 sequences an optimizer step",
        "micro-batch  16 sequences on each of 8 ranks: 1,024 = 16 x 8 x 8 accumulation steps",
        "updates      1 x 256 / 128 = 2 optimizer steps a batch",
        "epoch        7,473 prompts = 29 steps, 49 prompts left out (they fill no batch)",
        "run          29 steps, 58 optimizer steps",
    ]


def test_the_critic_has_sizes_of_its_own_or_those_of_the_actor() -> None:
    # The worked example: critic micro-batches of 4 on 8 ranks are 32 at once, 4 accumulation steps.
    given = config(
        train=256,
        n=1,
        mini=128,
        micro=16,
        critic={"ppo_micro_batch_size_per_gpu": 4},
        trainer={"total_training_steps": 10, "critic_warmup": 3},
    )
    plan = plan_batches(given, dp_size=8, has_critic=True)
    assert describe(plan).splitlines()[-3:] == [
        "critic       4 sequences on each of 8 ranks: 128 = 4 x 8 x 4 accumulation steps; "
        "1 x 256 / 128 = 2 optimizer steps a batch",
        "warm-up      3 steps of the critic alone",
        "run          10 steps, 14 optimizer steps",
    ]
    assert (plan.num_updates, plan.num_critic_updates) == (14, 20)  # 7 and 10 steps, 2 each
    alone = plan_batches(given, dp_size=8)
    assert (alone.critic, alone.num_updates, alone.num_critic_updates) == (None, 20, None)

    own = config(train=8, n=2, ppo_epochs=2, critic={"ppo_mini_batch_size": 4, "ppo_epochs": 3})
    critic = plan_batches(own, has_critic=True).critic
    assert critic is not None
    assert (critic.mini_batch_prompts, critic.micro_batch_size) == (4, 8)
    assert critic.updates_per_step == 6  # 3 x 8 / 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"critic": {"ppo_mini_batch_size": 5}}, "--critic.ppo_mini_batch_size 5 does not divide"),
        (
            {"critic": {"ppo_micro_batch_size_per_gpu": 3}},
            "--critic.ppo_micro_batch_size_per_gpu 3 does not divide the 16",
        ),
        (
            {"critic": {"optim": {"lr_warmup_steps": 9}}},
            "--critic.optim.lr_warmup_steps 9 is more than the run's 4 optimizer steps",
        ),
        ({"trainer": {"critic_warmup": 4}}, "--trainer.critic_warmup 4: the run has 4 steps"),
        (
            {"trainer": {"critic_warmup": 3}, "optim": {"lr_warmup_steps": 2}},
            "--actor.optim.lr_warmup_steps 2 is more than the run's 1 optimizer steps",
        ),
    ],
)
def test_what_a_critic_cannot_do_is_refused(more: dict[str, dict], message: str) -> None:
    trainer = {"total_training_steps": 4, **more.pop("trainer", {})}
    with pytest.raises(ConfigError, match=message):
        plan_batches(config(train=8, n=2, trainer=trainer, **more), has_critic=True)


def test_describe_says_what_follows() -> None:
    text = describe(plan_batches(config(train=8, n=1)))
    assert "steps unknown until the training prompts are counted" in text
    assert "one optimizer step a batch: it is made where the ratio is 1" in text


sizes = st.integers(min_value=1, max_value=300)


@given(train=sizes, n=st.integers(1, 17), mini=sizes, micro=sizes, dp_size=st.integers(1, 9))
def test_a_plan_is_exact_or_refused(
    train: int, n: int, mini: int, micro: int, dp_size: int
) -> None:
    try:
        plan: BatchPlan = plan_batches(
            config(train=train, n=n, mini=mini, micro=micro), dp_size=dp_size
        )
    except ConfigError:
        assert train % mini or (mini * n) % (dp_size * micro)
        return
    assert plan.updates_per_step * plan.mini_batch_prompts == train
    assert plan.accumulation_steps * micro * dp_size == mini * n
