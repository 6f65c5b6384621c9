"""`rlgym-train` under top-p: generator and learner agree, in this process and over a Ray actor."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from rlgym_llm_trainers.cli import main

from rlgym_llm import cli

SMALL = (
    *("--data.train_batch_size", "4", "--rollout.n", "4", "--data.val_max_samples", "4"),
    *("--trainer.total_training_steps", "2", "--trainer.num_threads", "1"),
    *("--trainer.val_before_train", "false", "--rollout.name", "hf"),
)
CUT = ("--rollout.top_p", "0.9", "--rollout.temperature", "0.7")
BARE = """
    import dataclasses

    from rlgym_llm import hookimpl
    from rlgym_llm.specs import GeneratorSpec
    from rlgym_llm_trainers.generators.hf_generator import HFGenerator

    class Bare(HFGenerator):
        def generate(self, requests):
            done = super().generate(requests)
            return [dataclasses.replace(one, kept_token_ids=None) for one in done]

    @hookimpl
    def rlgym_register(kind):
        here = f"{__name__}:Bare.from_config"
        return [GeneratorSpec(name="bare", entry_point=here)] if kind == "generator" else []
"""


SPY = """
    from rlgym_llm import hookimpl
    from rlgym_llm.errors import UserError
    from rlgym_llm.specs import GeneratorSpec

    def make(policy, config):
        val_kwargs = config.rollout.val_kwargs
        raise UserError(f"training cuts: {config.rollout.is_cut}, top_p {val_kwargs.top_p}")

    @hookimpl
    def rlgym_register(kind):
        here = f"{__name__}:make"
        return [GeneratorSpec(name="spy", entry_point=here)] if kind == "generator" else []
"""


@pytest.mark.parametrize("flags", [(), ("--rollout.num_workers", "1")], ids=["hf", "ray"])
def test_two_steps_under_top_p(tmp_path, flags):
    output = tmp_path / "out"
    words = [*SMALL, *CUT, *flags, "--actor.use_kl_loss", "true", "--actor.entropy_coeff", "0.01"]
    done = subprocess.run(
        [sys.executable, "-m", "rlgym_llm_trainers.cli", "--output", str(output), *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["step"] > 0]
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert row["training/rollout_probs_diff_mean"] < 1e-5
        assert row["training/rollout_ratio_diff_max"] < 1e-3
        assert row["actor/grad_norm"] > 0
        assert row["actor/skipped_ratio"] == 0
    # The reference is the policy of the first step, over the same kept sets.
    assert steps[0]["actor/kl_loss"] == pytest.approx(0, abs=1e-6)


def test_a_generator_without_kept_sets_is_refused_at_its_first_sample(
    tmp_path, capsys, plugin_file
):
    flags = ["--plugin", plugin_file(BARE), "--rollout.name", "bare"]
    output = str(tmp_path / "out")
    words = [word for word in SMALL if word not in ("--rollout.name", "hf")]
    assert main([*words, *CUT, *flags, "--output", output]) != 0
    stderr = capsys.readouterr().err.strip()
    assert "did not say which tokens top-k and top-p left" in stderr.splitlines()[-1]
    assert "--rollout.top_p 1" in stderr
    assert "Traceback" not in stderr


def test_an_evaluation_asks_no_generator_for_kept_sets(tmp_path, capsys, plugin_file):
    """Though it reads the configuration of a run that trains under top-p."""
    file = tmp_path / "run.yaml"
    file.write_text("rollout: {name: spy, top_p: 0.9}\n")
    flags = ["--plugin", plugin_file(SPY), "--config", str(file)]
    sampling = ["--temperature", "0.7", "--top-p", "0.8"]
    assert cli.main(["eval", *flags, *sampling, "--output", str(tmp_path / "out")]) == 2
    assert "training cuts: False, top_p 0.8" in capsys.readouterr().err
    assert main([*flags, "--output", str(tmp_path / "out")]) == 2
    assert "training cuts: True, top_p 1.0" in capsys.readouterr().err
