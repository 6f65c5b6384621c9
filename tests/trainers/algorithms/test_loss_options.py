"""A policy loss gets its options from the configuration, by their names."""

from __future__ import annotations

import json
import math
import re
import textwrap

import pytest
import torch
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.algorithms.losses import PolicyLossInputs, ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss, load_policy_loss
from rlgym_llm_trainers.algorithms.losses.gpg import gpg_loss
from rlgym_llm_trainers.algorithms.losses.gspo import gspo_loss
from rlgym_llm_trainers.algorithms.losses.sapo import sapo_loss
from rlgym_llm_trainers.algorithms.metrics import finalize
from rlgym_llm_trainers.cli import main

from rlgym_llm.config import parse_command
from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import ConfigError, PluginError
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind


def echo(inputs, *, reduce, clip_low=9.0, clip_high=9.0, clip_c=9.0, width=1):
    return clip_low, clip_high, clip_c, width


def bound(loss, **actor):
    return bind_policy_loss(loss, ActorConfig.model_validate(actor))


def test_options_come_by_name():
    given = {"clip_ratio": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 5.0}
    options = {"policy_loss_kwargs": {"width": 2}}
    assert bound(echo, **given, **options)(None, reduce=None) == (0.2, 0.28, 5.0, 2)


def test_a_clip_that_is_not_given_is_the_losss_own():
    assert bound(echo)(None, reduce=None) == (9.0, 9.0, 9.0, 1)
    assert bound(echo, clip_ratio_low=0.1)(None, reduce=None) == (0.1, 9.0, 9.0, 1)
    # 0.2 was the default of every loss once: given, it is as good as any other value.
    assert bound(echo, clip_ratio=0.2, clip_ratio_c=3.0)(None, reduce=None) == (0.2, 0.2, 3.0, 1)


def test_configurations_that_spell_out_what_ppo_takes_go_with_every_loss():
    for loss in (gpg_loss, sapo_loss, gspo_loss):
        assert bound(loss, clip_ratio=0.2, clip_ratio_c=3.0) is not None


@pytest.mark.parametrize(
    "body",
    [
        "seen = vars(bare).setdefault('seen', []); seen.append(1); loss = loss / len(seen)",
        "loss = loss * loss.new_empty(loss.shape).uniform_(0.5, 1.5)",
    ],
    ids=["state", "chance"],
)
def test_a_loss_with_a_state_or_chance_in_it_is_taken(load_bare, body):
    returned = "return LossOutput(loss=reduce(loss, inputs.mask), metrics={})"
    load_bare(f"{body}\n{' ' * 16}{returned}")


def test_a_clip_without_a_default_is_asked_for_by_its_key():
    def bare(inputs, *, reduce, clip_low):
        return clip_low

    with pytest.raises(ConfigError, match=r"^--actor\.clip_ratio_low must be given"):
        bound(bare)
    assert bound(bare, clip_ratio=0.1)(None, reduce=None) == 0.1


def of_one_token(name, ratio, advantage, **actor):
    """The loss by this name, as the configuration gives it, and its numbers, on one token."""
    loss = load_policy_loss(
        ActorConfig.model_validate({"policy_loss": name, **actor}), Plugins.installed()
    )
    inputs = PolicyLossInputs(
        logprobs=torch.tensor([[ratio]], dtype=torch.float64).log(),
        old_logprobs=torch.zeros(1, 1, dtype=torch.float64),
        advantages=torch.tensor([[advantage]], dtype=torch.float64),
        mask=torch.ones(1, 1, dtype=torch.bool),
    )
    output = loss(inputs, reduce=lambda values, mask: values[mask].sum())
    return output.loss.item(), finalize(output.metrics)["actor/pg_clipfrac"]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("ppo_clip", 0.2, 0.2), ("gspo", 3e-4, 4e-4), ("gmpo", 0.4, 0.4), ("dppo_tv", 0.2, 0.2)],
)
def test_a_bare_name_clips_as_published(name, low, high):
    # Of a token whose old probability is 1 the ratio is the probability, so that 1 +- clip is the
    # edge of the ratio and, for dppo_tv, of the probability; gmpo's clips are of the log-ratio.
    for advantage, edge in ((1.0, high), (-1.0, -low)):
        inside, outside = (
            of_one_token(name, math.exp(d) if name == "gmpo" else 1 + d, advantage)[1]
            for d in (0.99 * edge, 1.01 * edge)
        )
        assert (inside, outside) == (0.0, 1.0)


def test_a_bare_cispo_has_no_lower_bound():
    assert of_one_token("cispo", 1e-3, 1.0)[1] == 0.0
    assert of_one_token("cispo", 1.19, 1.0)[1] == 0.0
    assert of_one_token("cispo", 1.21, 1.0)[1] == 1.0


def test_a_clip_that_is_given_wins():
    assert of_one_token("gspo", 1.1, 1.0) == (pytest.approx(-1.0004), 1.0)
    assert of_one_token("gspo", 1.1, 1.0, clip_ratio=0.2) == (pytest.approx(-1.1), 0.0)
    assert of_one_token("gspo", 1.1, 1.0, clip_ratio=0.2, clip_ratio_high=0.05) == (
        pytest.approx(-1.05),
        1.0,
    )
    # The dual clip: 3 unless given.
    assert of_one_token("ppo_clip", 10.0, -1.0)[0] == pytest.approx(3.0)
    assert of_one_token("ppo_clip", 10.0, -1.0, clip_ratio_c=4.0)[0] == pytest.approx(4.0)


def test_a_loss_with_one_clip_takes_the_clip_of_both():
    def high_only(inputs, *, reduce, clip_high=9.0):
        return clip_high

    assert bound(high_only, clip_ratio=0.1)(None, reduce=None) == 0.1
    with pytest.raises(ConfigError, match=r"clip_ratio_low 0\.1: has no effect"):
        bound(high_only, clip_ratio_low=0.1)


@pytest.mark.parametrize(
    ("loss", "actor", "message"),
    [
        (sapo_loss, {"policy_loss_kwargs": {"tau_ned": 2}}, "tau_ned: no such option.*tau_neg"),
        (gpg_loss, {"policy_loss_kwargs": {"reduce": 2}}, "reduce: no such option"),
        (ppo_clip_loss, {"policy_loss_kwargs": {"clip_c": 2}}, "give --actor.clip_ratio_c"),
        (gpg_loss, {"clip_ratio_low": 0.1}, "--actor.clip_ratio_low 0.1: has no effect on the"),
        (sapo_loss, {"clip_ratio": 0.1}, "--actor.clip_ratio 0.1: has no effect"),
        (gspo_loss, {"clip_ratio_c": 2.0}, "--actor.clip_ratio_c 2: has no effect"),
    ],
)
def test_options_that_have_no_effect_are_refused(loss, actor, message):
    with pytest.raises(ConfigError, match=message):
        bound(loss, **actor)


@pytest.mark.parametrize(
    ("actor", "message"),
    [
        ({"policy_loss": "ppo_clip", "clip_ratio": 1.5}, "ppo_clip: clip_low 1.5 must be in"),
        (
            {"policy_loss": "sapo", "policy_loss_kwargs": {"tau_pos": 0}},
            "--actor.policy_loss sapo: tau_pos 0 and tau_neg 1.05 must be above 0",
        ),
        ({"policy_loss": "sapo", "policy_loss_kwargs": {"tau_pos": "much"}}, "sapo: '>' not"),
    ],
)
def test_values_that_a_loss_refuses_are_refused_before_the_run(actor, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_policy_loss(ActorConfig.model_validate(actor), Plugins.installed())


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("reduce(loss, inputs.mask)", "returned a Tensor, not LossOutput"),
        ("LossOutput(loss=loss.mean(), metrics={})", "does not call the reduce it is given"),
        (
            "reduce(loss, inputs.mask) and LossOutput(loss=loss.sum(), metrics={})",
            "does not call the reduce it is given",
        ),
        (
            "LossOutput(loss=reduce(loss, inputs.mask) + 0.01 * loss.mean(), metrics={})",
            "does not call the reduce it is given",
        ),
    ],
    ids=["no output", "no reduce", "a reduce passed over", "a term beside reduce"],
)
def test_a_loss_that_keeps_no_contract_is_named_before_the_run(load_bare, returned, says):
    with pytest.raises(PluginError, match=f"policy loss 'bare' {says}"):
        load_bare(f"return {returned}")


REDUCED = "reduce(loss, inputs.mask)"


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (f"LossOutput(loss=float({REDUCED}.detach()), metrics={{}})", "a float as its loss, not a"),
        (f"LossOutput(loss={REDUCED}.detach(), metrics={{}})", "a loss without a gradient: nothi"),
        ("LossOutput(loss=loss, metrics={})", "a loss of torch.float32 and shape [2, 3]; it must"),
        (
            f"LossOutput(loss={REDUCED} * 1j, metrics={{}})",
            "a loss of torch.complex64 and",
        ),
        (f"LossOutput(loss={REDUCED}, metrics=None)", "a NoneType as metrics, not a mapping"),
        (
            f"LossOutput(loss={REDUCED}, metrics={{'actor/x': 0.5}})",
            "a float as the metric 'actor/x'; take Metric.mean(total, count), sum, max or min",
        ),
        (f"LossOutput(loss={REDUCED}, metrics={{3: Metric.sum(1)}})", "a metric under 3, which is"),
    ],
)
def test_an_output_that_nothing_is_learned_from_is_named(load_bare, returned, says):
    with pytest.raises(PluginError) as error:
        load_bare(f"return {returned}")
    assert str(error.value).startswith("policy loss 'bare' returned ")
    assert says in str(error.value)
    late = load_bare(f"if is_run: return {returned}\n{RETURNS_LOSS}")
    with pytest.raises(PluginError, match=r"^policy loss 'bare' returned "):
        late(of_two_tokens(), reduce=lambda values, mask: values[mask].sum())


def test_a_loss_that_is_not_finite_is_named_before_the_run(load_bare):
    with pytest.raises(PluginError, match="policy loss 'bare' is nan of a few ordinary tokens"):
        load_bare(f"return LossOutput(loss={REDUCED} * float('nan'), metrics={{}})")


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        ("SystemExit(0)", "failed: SystemExit: 0"),
        ("RuntimeError('two\\nlines')", "failed: RuntimeError: two lines"),
        ("KeyError('x')", "failed: KeyError: 'x'"),
    ],
)
def test_whatever_a_loss_raises_names_it(load_bare, raised, says):
    late = load_bare(f"if is_run: raise {raised}\n{RETURNS_LOSS}")
    for call in (
        lambda: load_bare(f"raise {raised}"),
        lambda: late(of_two_tokens(), reduce=lambda values, mask: values[mask].sum()),
    ):
        with pytest.raises(PluginError) as error:
            call()
        assert str(error.value) == f"policy loss 'bare' {says}"


def test_a_loss_whose_gradient_fails_is_named_before_the_run(load_bare):
    with pytest.raises(PluginError, match="policy loss 'bare' failed: RuntimeError: Trying"):
        load_bare(f"loss = {REDUCED}; loss.backward(); return LossOutput(loss=loss, metrics={{}})")


RETURNS_LOSS = " " * 16 + f"return LossOutput(loss={REDUCED}, metrics={{}})"


def of_two_tokens():
    one = torch.ones(1, 2)
    return PolicyLossInputs(
        logprobs=-one.requires_grad_(), old_logprobs=-one, advantages=one, mask=one.bool()
    )


@pytest.fixture
def load_bare(plugin_file):
    """Loads a policy loss ``bare`` of a plugin, given the body of the function."""

    def load(body):
        path = plugin_file(
            f"""
            from rlgym_llm import hookimpl
            from rlgym_llm.specs import PolicyLossSpec
            from rlgym_llm_trainers.algorithms.losses import LossOutput
            from rlgym_llm_trainers.algorithms.metrics import Metric

            def bare(inputs, *, reduce):
                loss = -inputs.advantages * inputs.logprobs
                is_run = len(inputs.mask) != 2
                {body}

            @hookimpl
            def rlgym_register(kind):
                if kind != "policy_loss":
                    return []
                return [PolicyLossSpec(name="bare", entry_point=f"{{__name__}}:bare")]
            """
        )
        return load_policy_loss(ActorConfig(policy_loss="bare"), Plugins.discover([path]))

    return load


@pytest.mark.parametrize("mode", list(LossAggMode))
@pytest.mark.parametrize("name", [spec.name for spec in rlgym_register(Kind.POLICY_LOSS)])
def test_every_loss_of_ours_keeps_the_contract(name, mode):
    config = ActorConfig(policy_loss=name, loss_agg_mode=mode)
    assert callable(load_policy_loss(config, Plugins.installed()))


@pytest.mark.parametrize(("verl", "ours"), [("vanilla", "ppo_clip"), ("geo_mean", "gmpo")])
def test_verls_names_of_losses_are_taken(verl, ours):
    spelling = "--actor_rollout_ref.actor.policy_loss.loss_mode"
    assert parse_command([spelling, verl]).config.actor.policy_loss == ours


SMALL = [
    *("--data.train_batch_size", "2", "--rollout.n", "4", "--trainer.val_before_train", "false"),
    *("--data.val_max_samples", "2", "--data.max_response_length", "16"),
    *("--trainer.num_threads", "1", "--trainer.total_training_steps", "1"),
]


def trained(tmp_path, *flags):
    """The metrics of one step of `rlgym-train` with the flags."""
    assert main(["--output", str(tmp_path / "out"), *SMALL, *flags]) == 0
    return json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize(
    "flags",
    [
        ("geo_mean", "--actor.clip_ratio", "0.4", "--actor.loss_agg_mode", "prompt-mean"),
        ("sapo", "--actor.policy_loss_kwargs.tau_neg", "1.1", "--actor.ppo_epochs", "2"),
    ],
    ids=["gmpo", "sapo"],
)
def test_a_loss_trains_by_its_name(tmp_path, flags):
    row = trained(tmp_path, "--actor.policy_loss.loss_mode", *flags)
    assert row["actor/grad_norm"] > 0
    assert row["actor/skipped_ratio"] == 0


def test_the_unbiased_kl_term_trains_by_its_name(tmp_path):
    # Two passes: in the second the ratio has left 1, and with it the KL in the loss is another.
    flags = ["--actor.use_kl_loss", "true", "--actor.ppo_epochs", "2", "--actor.optim.lr", "1e-3"]
    plain = trained(tmp_path / "plain", *flags)
    unbiased = trained(tmp_path / "unbiased", *flags, "--actor.kl_loss_unbiased", "true")
    assert unbiased["actor/grad_norm"] > 0
    assert unbiased["actor/kl_loss"] > 0
    assert unbiased["actor/kl_loss"] != plain["actor/kl_loss"]


def test_the_unbiased_kl_term_needs_one(tmp_path, capsys):
    flags = ["--output", str(tmp_path / "out"), *SMALL, "--actor.kl_loss_unbiased", "true"]
    assert main(flags) == 2
    stderr = capsys.readouterr().err
    assert "kl_loss_unbiased has no effect without use_kl_loss" in stderr
    assert stderr.count("\n") == 1


def test_a_loss_of_a_plugin_trains_by_its_name_with_options_of_its_own(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        textwrap.dedent(
            """
            from rlgym_llm import hookimpl
            from rlgym_llm.specs import PolicyLossSpec
            from rlgym_llm_trainers.algorithms.losses import LossOutput
            from rlgym_llm_trainers.algorithms.metrics import Metric

            def plain(inputs, *, reduce, strength=1.0, clip_high=9.0):
                loss = reduce(-strength * inputs.advantages * inputs.logprobs, inputs.mask)
                return LossOutput(
                    loss=loss,
                    metrics={
                        "mine/strength": Metric.mean(strength, 1),
                        "mine/clip": Metric.mean(clip_high, 1),
                    },
                )

            @hookimpl
            def rlgym_register(kind):
                if kind != "policy_loss":
                    return []
                return [PolicyLossSpec(name="plain", entry_point=f"{__name__}:plain")]
            """
        )
    )
    flags = ["--plugin", str(plugin), "--actor.policy_loss", "plain"]
    flags += ["--actor.policy_loss_kwargs.strength", "2.5", "--actor.clip_ratio_high", "0.3"]
    row = trained(tmp_path, *flags)
    assert (row["mine/strength"], row["mine/clip"]) == (2.5, 0.3)
    assert row["actor/grad_norm"] > 0


def test_a_misspelt_option_is_one_line_and_waits_for_no_model(tmp_path, capsys):
    flags = ["--actor.policy_loss", "sapo", "--actor.policy_loss_kwargs.tau", "2"]
    assert main(["--output", str(tmp_path / "out"), *SMALL, *flags]) == 2
    stderr = capsys.readouterr().err
    assert "actor.policy_loss_kwargs.tau: no such option" in stderr
    assert stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
