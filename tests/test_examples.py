"""Every example runs, and says what it should."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.losses import PolicyLossInputs
from rlgym_llm_trainers.algorithms.metrics import finalize
from rlgym_llm_trainers.cli import main

import rlgym_llm
from rlgym_llm import Completion, Plugins, Rollout, Task, Turn
from rlgym_llm.check_env import check_env
from rlgym_llm.check_reward import check_reward
from rlgym_llm.specs import Kind
from rlgym_llm.store import write_rollouts

EXAMPLES = Path(__file__).parents[1] / "examples"
WEIGHTINGS = ["correct first", "format first", "short first"]


def run(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "compose_rewards.py",
        "my_algorithm.py",
        "my_plugin.py",
        "score_offline.py",
        "weigh_objectives.py",
    }


def test_the_readme_composes_as_it_says():
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    block = next(b for b in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "make(" in b)
    found = {}
    exec(block, found)
    assert found["reward"] == pytest.approx(1.18)
    assert found["info"]["components"] == {"correct": 1.0, "format": 1.0, "brevity": 20.0}


def test_compose_rewards(monkeypatch, capsys):
    run(monkeypatch, "compose_rewards.py")
    out = capsys.readouterr().out
    # 28 characters at -0.001 each: 1.0 + 0.2 - 0.028; the wrong answer's gate is closed.
    assert "reward 1.172" in out
    assert "reward 0.000" in out
    assert "brevity  raw not called" in out


def test_score_offline(monkeypatch, capsys, tmp_path):
    rows = [
        {"prompt": "2 + 3?", "completion": "2 + 3 = 5\n#### 5", "answer": "5"},
        {"question": "2 + 3?", "completion": "It is 5.", "id": "second"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(monkeypatch, "score_offline.py", path)
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    # 16 characters at -0.001 each: 1.0 + 0.2 - 0.016.
    assert first == {
        "id": "1",
        "reward": pytest.approx(1.184),
        "raw": {"math": 1.0, "format": 1.0, "length": 16.0},
    }
    assert second["id"] == "second"  # it has no answer to be judged by
    assert second["reward"] is None


def stored_rollouts():
    """Two tasks; of each a right answer, a formatted one and a short one, of 9, 6 and 2 tokens."""
    texts = {"It makes 5 in all.": 9, "Say\n#### 7": 6, "7": 2}
    for task in ("a", "b"):
        for index, (text, num_tokens) in enumerate(texts.items()):
            completion = Completion(text=text, token_ids=tuple(range(num_tokens)))
            yield Rollout(
                id=f"{task}{index}",
                task=Task(prompt="2 + 3?", answer="5"),
                group_id=task,
                sample_index=index,
                seed=0,
                turns=(Turn(new_prompt_token_ids=(1,), completion=completion),),
                terminated=True,
            )


def test_weigh_objectives_of_stored_rollouts(monkeypatch, capsys, tmp_path):
    stored, picture = tmp_path / "rollouts.jsonl", tmp_path / "picture.png"
    write_rollouts(stored, list(stored_rollouts()))
    run(monkeypatch, "weigh_objectives.py", "--file", stored, "--output", picture)
    lines = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    found = {line[0]: line[-3:] for line in lines if len(line) > 2}
    assert found["any answer"] == ["33.3%", "33.3%", "5.7"]
    assert found["correct first 1 0.1 -0.0005"] == ["100.0%", "0.0%", "9.0"]
    assert found["format first"] == ["0.0%", "100.0%", "6.0"]
    # 0.1 - 0.02 * 9, 0.1 - 0.02 * 6 and -0.02 * 2: the formatted one, then the short one.
    assert found["short first"] == ["0.0%", "100.0%", "6.0"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_weigh_objectives_samples_and_trains(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "picture.png"
    few = ["--env.kwargs.num_problems=4", "--data.train_batch_size=2", "--rollout.n=2"]
    words = ["--tasks=2", "--n=2", "--steps=1", f"--output={picture}"]
    run(monkeypatch, "weigh_objectives.py", "--train", *words, *few)
    out = capsys.readouterr().out
    sampled, trained = out.split("winners of each group")[1].split("after training")
    for table, names in ((sampled, ["any answer", *WEIGHTINGS]), (trained, WEIGHTINGS)):
        rows = [line for line in table.splitlines() if line.count("%") == 2]
        assert [row[:14].strip() for row in rows] == list(names)
    assert picture.stat().st_size > 10_000


def test_my_plugin_passes_the_shipped_contracts():
    plugins = Plugins.discover([EXAMPLES / "my_plugin.py"])
    check_env(rlgym_llm.make("reverse-text", plugins=plugins))
    check_reward(plugins.load(plugins.rewards()["reversed"]))


def test_my_algorithm_counts_as_it_says():
    plugins = Plugins.discover([EXAMPLES / "my_algorithm.py"])
    median = plugins.load(plugins.get(Kind.ADVANTAGE, "median"))
    rewards, groups = [0, 0, 1, None, 9, 5, None], ["a", "a", "a", "a", "a", "b", "b"]
    found = median(AdvantageInputs.of_rewards(rewards, groups))
    # The median of 0, 0, 1, 9 is .5; the lone scored one of b is compared with nothing.
    assert found.advantages[:, 0].tolist() == [-0.5, -0.5, 0.5, 0.0, 8.5, 0.0, 0.0]
    assert found.is_valid.tolist() == [True, True, True, False, True, False, False]

    spo = plugins.load(plugins.get(Kind.POLICY_LOSS, "spo"))
    ratios = torch.tensor([[1.1, 1.2, 1.5, 7.0]], dtype=torch.float64)
    logprobs = ratios.log().requires_grad_()
    mask = torch.tensor([[True, True, True, False]])
    output = spo(
        PolicyLossInputs(
            logprobs=logprobs,
            old_logprobs=torch.tensor([[0.0, 0.0, 0.0, float("nan")]], dtype=torch.float64),
            advantages=torch.tensor([[2.0, 2.0, -1.0, 2.0]], dtype=torch.float64),
            mask=mask,
        ),
        reduce=lambda values, mask: values[mask].sum(),
    )
    # -2.2 + 2 * .01 / .4, -2.4 + 2 * .04 / .4 and 1.5 + .25 / .4.
    assert output.loss.item() == pytest.approx(-2.15 - 2.2 + 2.125)
    output.loss.backward()
    # r dL/dr = r (-A + |A| (r - 1) / width): 0 at the width where A > 0.
    assert logprobs.grad[0].tolist() == pytest.approx([-1.1, 0.0, 1.5 * 3.5, 0.0], abs=1e-12)
    assert finalize(output.metrics) == {"actor/spo_outside": pytest.approx(1 / 3)}


def test_my_algorithm_trains_by_the_command_it_gives(tmp_path):
    source = (EXAMPLES / "my_algorithm.py").read_text(encoding="utf-8")
    command = re.search(r"rlgym-train (.*?)\n\n", source, re.DOTALL)[1].replace("\\\n", " ")
    flags = command.replace("examples/", f"{EXAMPLES}/").split()
    small = ["--data.train_batch_size=2", "--data.val_max_samples=2", "--trainer.num_threads=1"]
    small += ["--trainer.total_training_steps=1", "--trainer.val_before_train=false"]
    assert main([*flags, *small, "--output", str(tmp_path / "out")]) == 0
    row = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[0])
    assert row["actor/grad_norm"] > 0
    assert "actor/spo_outside" in row
