import pytest

from rlgym_llm.config import load_config
from rlgym_llm.errors import ConfigError


def test_checkpoints_are_off_by_default_and_kept_all():
    trainer = load_config([]).trainer
    assert (trainer.save_freq, trainer.num_kept, trainer.resume_mode) == (-1, None, "auto")


def test_verls_spellings_are_taken():
    trainer = load_config(
        ["trainer.save_freq=20", "trainer.default_local_dir=runs/a", "trainer.resume_mode=disable"]
    ).trainer
    assert (trainer.save_freq, trainer.output, trainer.resume_mode) == (20, "runs/a", "disable")


@pytest.mark.parametrize("key", ["max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep"])
def test_either_number_to_keep_counts_for_the_one_folder(key):
    trainer = load_config(["--trainer.save_freq", "2", f"--trainer.{key}", "3"]).trainer
    assert trainer.num_kept == 3


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--trainer.save_freq=0"], "save_freq must be -1 (never) or at least 1"),
        (["--trainer.max_actor_ckpt_to_keep=2"], "has no effect with save_freq -1"),
        (["--trainer.esi_redundant_time=9"], "has no effect with save_freq -1"),
        (
            [
                "--trainer.save_freq=1",
                "--trainer.max_actor_ckpt_to_keep=2",
                "--trainer.max_critic_ckpt_to_keep=3",
            ],
            "one folder holds policy and critic",
        ),
        (["--trainer.resume_mode=resume_path"], "needs resume_from_path"),
        (
            ["--trainer.resume_from_path=runs/a/checkpoints/step_2"],
            "has no effect without resume_mode resume_path",
        ),
        (["--trainer.resume_mode=always"], "resume_mode"),
    ],
)
def test_what_cannot_be_meant_is_one_line(flags, says):
    with pytest.raises(ConfigError) as caught:
        load_config(flags)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
