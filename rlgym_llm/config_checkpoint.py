"""The keys of the section ``trainer`` about checkpoints: when one is saved, and what goes on."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from rlgym_llm.config_base import Count, Every, NonNegative, Section

__all__ = ["CheckpointKeys"]


class CheckpointKeys(Section):
    """Checkpoints of a run, in the folder `checkpoints` of its own."""

    save_freq: Every = -1
    """Saves a checkpoint every so many steps, after the last one, and when Ctrl-C or an error ends
    the run; -1 saves none."""
    max_actor_ckpt_to_keep: Count | None = None
    """Checkpoints that are kept, the newest; null keeps all."""
    max_critic_ckpt_to_keep: Count | None = None
    """The same: one folder holds policy and critic."""
    resume_mode: Literal["auto", "disable", "resume_path"] = "auto"
    """auto goes on from the newest checkpoint in `output`, where it is of the same settings;
    resume_path from `resume_from_path`; disable from none."""
    resume_from_path: str | None = None
    """A checkpoint's folder, such as `runs/a/checkpoints/step_20`, to begin a new run from."""
    esi_redundant_time: NonNegative = 0.0
    """Where a cluster announces the end of the machine, saves once what is left of its time is a
    step, a minute for saving and these seconds."""

    @property
    def num_kept(self) -> int | None:
        """Checkpoints that are kept; None for all."""
        return self.max_actor_ckpt_to_keep or self.max_critic_ckpt_to_keep

    @model_validator(mode="after")
    def _check_checkpoints(self) -> Self:
        if self.save_freq == 0:
            raise ValueError("save_freq must be -1 (never) or at least 1")
        if self.save_freq == -1:
            for name in ("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep", "esi_redundant_time"):
                if getattr(self, name):
                    raise ValueError(f"{name} has no effect with save_freq -1")
        kept = {self.max_actor_ckpt_to_keep, self.max_critic_ckpt_to_keep} - {None}
        if len(kept) > 1:
            raise ValueError(
                "max_actor_ckpt_to_keep and max_critic_ckpt_to_keep differ; one folder holds "
                "policy and critic, so give one number"
            )
        if self.resume_mode == "resume_path" and self.resume_from_path is None:
            raise ValueError("resume_mode resume_path needs resume_from_path")
        if self.resume_mode != "resume_path" and self.resume_from_path is not None:
            raise ValueError("resume_from_path has no effect without resume_mode resume_path")
        return self
