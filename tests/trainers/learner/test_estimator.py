"""Which estimator a run takes, and what is refused before it starts."""

import subprocess
import sys

import numpy as np
import pytest
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.learner.estimator import load_estimator

from rlgym_llm.config import load_config
from rlgym_llm.errors import ConfigError, PluginError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.specs import Kind

COMPONENTS = {"components": {"math": {}, "format": {"weight": 0.5}}}


@pytest.fixture(scope="module")
def plugins():
    return Plugins.discover()


def load(plugins, *flags, **rules):
    return load_estimator(load_config(flags), read_rewards({**COMPONENTS, **rules}), plugins)


def test_keys_of_the_section_are_options_by_their_names(plugins):
    inputs = AdvantageInputs.of_rewards([3, 1, 1, 1], ["g"] * 4)
    flags = ["--algorithm.norm_adv_by_std_in_grpo", "false"]
    assert load(plugins, *flags)(inputs).advantages[:, 0].tolist() == [1.5, -0.5, -0.5, -0.5]
    # (3 - 1.5) / (1 + eps): with eps 1 half of it.
    eps = load(plugins, "--algorithm.adv_kwargs.eps", "1.0")
    assert eps(inputs).advantages[:, 0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_normalize_then_sum_is_gdpo(plugins):
    estimate = load(plugins, aggregate="normalize_then_sum")
    with pytest.raises(ValueError, match="gdpo needs the components"):
        estimate(AdvantageInputs.of_rewards([1, 0], ["g", "g"]))


@pytest.mark.parametrize(
    ("flags", "rules", "says"),
    [
        (["--rollout.n", "1"], {}, "--rollout.n 1: grpo compares the responses"),
        (["--algorithm.adv_estimator", "rloo", "--rollout.n", "1"], {}, "--rollout.n 1: rloo"),
        (["--critic.optim.lr", "1e-3"], {}, "--critic.optim.lr 0.001: has no effect on the est"),
        (["--critic.optim.eps", "1"], {}, "--critic.optim.eps 1.0: has no effect on the estimator"),
        (["--trainer.critic_warmup", "2"], {}, "--trainer.critic_warmup 2: has no effect on the"),
        (["--algorithm.use_pf_ppo", "true"], {}, "--algorithm.use_pf_ppo: grpo compares siblings"),
        (
            [
                *("--algorithm.adv_estimator", "reinforce_plus_plus", "--rollout.n", "1"),
                *("--algorithm.filter_groups.enable", "true"),
            ],
            {},
            "--algorithm.filter_groups.enable: a lone response has no other",
        ),
        (["--algorithm.gamma", "0.9"], {}, "--algorithm.gamma 0.9: has no effect on the estimator"),
        (
            ["--algorithm.adv_estimator", "rloo", "--algorithm.norm_adv_by_std_in_grpo", "no"],
            {},
            "--algorithm.norm_adv_by_std_in_grpo false: has no effect on the estimator rloo",
        ),
        (["--algorithm.adv_kwargs.epz", "1"], {}, "no such option; did you mean 'eps'?"),
        (["--algorithm.adv_estimator", "rlo"], {}, "did you mean 'rloo'?"),
        (
            ["--algorithm.adv_estimator", "rloo"],
            {"aggregate": "normalize_then_sum"},
            "rewards.aggregate normalize_then_sum is the estimator gdpo",
        ),
        (
            ["--algorithm.use_kl_in_reward"],
            {"aggregate": "normalize_then_sum"},
            "take --actor.use_kl_loss",
        ),
        (
            ["--algorithm.use_kl_in_reward", "--algorithm.adv_estimator", "gdpo"],
            {},
            "the KL penalty is none of them",
        ),
    ],
)
def test_what_cannot_work_is_refused(plugins, flags, rules, says):
    with pytest.raises(UserError) as error:
        load(plugins, *flags, **rules)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_one_rollout_a_prompt_is_enough_without_siblings(plugins):
    flags = ["--algorithm.adv_estimator", "reinforce_plus_plus", "--rollout.n", "1"]
    estimate = load(plugins, *flags, "--algorithm.gamma", "0.5")
    found = estimate(AdvantageInputs.of_rewards([1.0, 3.0], ["p", "q"]))
    assert found.advantages[:, 0] == pytest.approx([-(2**-0.5), 2**-0.5])


@pytest.mark.parametrize(
    ("estimator", "eps", "says"),
    [
        ("grpo", "-1", "eps must be above 0, got -1 (--algorithm.adv_kwargs: eps -1)"),
        ("maxrl", "0", "eps must be above 0, got 0 (--algorithm.adv_kwargs: eps 0)"),
        ("grpo", ".nan", "eps must be above 0, got nan (--algorithm.adv_kwargs: eps nan)"),
        ("gdpo", "abc", "'>' not supported between instances of 'str' and 'int' (--algorithm."),
        ("maxrl", "abc", "'>' not supported between instances of 'str' and 'int'"),
    ],
)
def test_values_that_an_estimator_refuses_are_refused_before_the_run(plugins, estimator, eps, says):
    flags = ["--algorithm.adv_estimator", estimator, "--algorithm.adv_kwargs.eps", eps]
    with pytest.raises(ConfigError) as error:
        load(plugins, *flags)
    assert str(error.value).startswith(f"--algorithm.adv_estimator {estimator}: {says}")


def test_every_estimator_of_ours_takes_what_a_run_gives_it(plugins):
    names = list(plugins.table(Kind.ADVANTAGE))
    assert len(names) == 12
    for name in names:
        assert callable(load(plugins, "--algorithm.adv_estimator", name))


def test_a_dry_run_tries_the_estimator_and_waits_for_no_torch():
    probe = (
        "import sys; from rlgym_llm_trainers.cli import main; "
        "code = main(['--dry-run', '--algorithm.adv_kwargs.eps', '-1']); "
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "False"], done.stderr
    assert "grpo: eps must be above 0" in done.stderr


@pytest.fixture
def load_mine(plugin_file):
    """Loads an estimator ``mine`` of a plugin, given the body of the function."""

    def load_body(body, **spec):
        options = "".join(f", {key}={value}" for key, value in spec.items())
        path = plugin_file(
            f"""
            import numpy as np
            from rlgym_llm import hookimpl
            from rlgym_llm.errors import UserError
            from rlgym_llm.specs import AdvantageSpec
            from rlgym_llm_trainers.algorithms.advantages import Advantages
            from rlgym_llm_trainers.algorithms.metrics import Metric

            def mine(inputs):
                values = np.where(inputs.mask, inputs.sequence_rewards[:, None], 0.0)
                is_valid = inputs.is_scored
                is_run = inputs.mask.shape[1] != 3
                {body}

            @hookimpl
            def rlgym_register(kind):
                if kind != "advantage":
                    return []
                return [AdvantageSpec(name="mine", entry_point=f"{{__name__}}:mine"{options})]
            """
        )
        return load(Plugins.discover([path]), "--algorithm.adv_estimator", "mine")

    return load_body


RETURNS_VALUES = " " * 16 + "return Advantages(advantages=values, is_valid=is_valid)"


def of_two_scored():
    return AdvantageInputs.of_rewards([3.0, 1.0, None], ["g"] * 3)


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        ("SystemExit(0)", "failed: SystemExit: 0"),
        ("RuntimeError('two\\nlines')", "failed: RuntimeError: two lines"),
        ("KeyError('x')", "failed: KeyError: 'x'"),
    ],
)
def test_whatever_an_estimator_raises_names_it(load_mine, raised, says):
    with pytest.raises(PluginError) as error:
        load_mine(f"raise {raised}")
    assert str(error.value) == f"advantage estimator 'mine' {says}"
    late = load_mine(f"if is_run: raise {raised}\n" + RETURNS_VALUES)
    with pytest.raises(PluginError) as error:
        late(of_two_scored())
    assert str(error.value) == f"advantage estimator 'mine' {says}"


def test_an_error_of_ours_keeps_its_words(load_mine):
    late = load_mine("if is_run: raise UserError('no such luck')\n" + RETURNS_VALUES)
    with pytest.raises(UserError, match=r"^no such luck$"):
        late(of_two_scored())
    with pytest.raises(UserError, match=r"^no such luck$"):
        load_mine("raise UserError('no such luck')")


def test_a_value_error_of_the_trial_is_the_options_fault(load_mine):
    with pytest.raises(ConfigError, match=r"^--algorithm\.adv_estimator mine: not so$"):
        load_mine("raise ValueError('not so')")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("values", "returned a ndarray, not Advantages"),
        ("Advantages(advantages=values[:1], is_valid=is_valid)", "advantages of shape [1, 3]; it"),
        ("Advantages(advantages=values * np.nan, is_valid=is_valid)", "advantages of NaN or inf"),
        ("Advantages(advantages=values.astype(object), is_valid=is_valid)", "of object; they must"),
        ("Advantages(advantages=values.astype(str), is_valid=is_valid)", "of <U32; they must be"),
        ("Advantages(advantages=values + 1j, is_valid=is_valid)", "of complex128; they must be of"),
        ("Advantages(advantages=[[1.0], []], is_valid=is_valid)", "are no array of numpy: ValueE"),
        ("Advantages(advantages=values, is_valid=is_valid * 1)", "is_valid of int64; it must be"),
        ("Advantages(advantages=values, is_valid=is_valid[1:])", "is_valid of shape [15]; it must"),
        (
            "Advantages(advantages=values, is_valid=is_valid, returns=values[:, 1:])",
            "returned returns of shape [16, 2]; it must be [16, 3]",
        ),
        (
            "Advantages(advantages=values, is_valid=is_valid, returns=values / 0)",
            "returned returns of NaN or infinity for a sampled token",
        ),
        (
            "Advantages(advantages=values, is_valid=is_valid, metrics={'a': 1.0})",
            "returned a float as the metric 'a'; take Metric.mean(total, count), sum, max or min",
        ),
        (
            "Advantages(advantages=values, is_valid=is_valid, metrics={1: Metric.sum(1)})",
            "returned a metric under 1, which is no name",
        ),
        (
            "Advantages(advantages=values, is_valid=is_valid, metrics=None)",
            "returned a NoneType as metrics, not a mapping",
        ),
    ],
)
def test_what_is_no_advantages_is_named_before_the_run(load_mine, returned, says):
    with pytest.raises(PluginError) as error:
        load_mine(f"return {returned}")
    assert str(error.value).startswith("advantage estimator 'mine' returned ")
    assert says in str(error.value)


def test_what_is_no_advantages_is_named_in_the_run_too(load_mine):
    late = load_mine("if is_run: values = values * np.nan\n" + RETURNS_VALUES)
    with pytest.raises(PluginError, match="advantages of NaN or infinity for a sampled token"):
        late(of_two_scored())


def test_a_critic_needs_returns(load_mine):
    with pytest.raises(PluginError, match=r"'mine' returned no returns, .*\.with_returns$"):
        load_mine("return Advantages(advantages=values, is_valid=is_valid)", needs_critic=True)
    assert load_mine(
        "return Advantages(advantages=values, is_valid=is_valid, returns=inputs.values)",
        needs_critic=True,
    )


@pytest.mark.parametrize("kind", ["values.tolist()", "values.astype('f4')", "values.astype(int)"])
def test_numbers_that_are_floats_without_a_loss_are_taken(load_mine, kind):
    found = load_mine(f"return Advantages(advantages={kind}, is_valid=is_valid)")(of_two_scored())
    assert found.advantages.dtype == np.float64
    assert found.advantages.tolist() == [[3.0], [1.0], [0.0]]


def test_the_trial_has_the_components_of_the_run(load_mine):
    names = ", ".join(map(repr, COMPONENTS["components"]))
    load_mine(f"assert [*inputs.component_rewards] == [{names}]\n{RETURNS_VALUES}")


def test_what_stands_where_nothing_trains_is_0(load_mine):
    estimate = load_mine(
        "return Advantages(advantages=np.where(inputs.mask & is_valid[:, None], values, np.nan), "
        "is_valid=is_valid)"
    )
    assert estimate(of_two_scored()).advantages.tolist() == [[3.0], [1.0], [0.0]]


def test_an_estimator_cannot_write_into_its_inputs(load_mine):
    with pytest.raises(ConfigError, match="adv_estimator mine: assignment destination is read-onl"):
        load_mine("next(iter(inputs.component_rewards.values()))[:] = 7.0")
    late = load_mine("if is_run: inputs.token_rewards[:] = np.nan\n" + RETURNS_VALUES)
    inputs = of_two_scored()
    with pytest.raises(PluginError, match="'mine' failed: ValueError: assignment destination is"):
        late(inputs)
    assert inputs.token_rewards.tolist() == [[3.0], [1.0], [0.0]]
    assert inputs.token_rewards.flags.writeable  # whoever made them goes on as before


def test_what_is_no_function_is_named(plugin_file):
    path = plugin_file(
        """
        from rlgym_llm import hookimpl
        from rlgym_llm.specs import AdvantageSpec

        number = 3

        @hookimpl
        def rlgym_register(kind):
            if kind != "advantage":
                return []
            return [AdvantageSpec(name="mine", entry_point=f"{__name__}:number")]
        """
    )
    with pytest.raises(PluginError, match="'mine' is a int, which cannot be called"):
        load(Plugins.discover([path]), "--algorithm.adv_estimator", "mine")
