"""What every environment with drawn problems must show: gold, garbage, splits, processes."""

import json
import subprocess
import sys

PROGRAM = """
import importlib, json, sys
module, name, options, indices = json.loads(sys.argv[1])
env = getattr(importlib.import_module(module), name)(**options)
print(json.dumps([[env.tasks[i].id, env.tasks[i].prompt[-1].content] for i in indices]))
"""


def play(env, index, reply):
    """Reward and raw scores of one reply to one task."""
    env.reset(options={"index": index})
    _, reward, terminated, truncated, info = env.step(reply)
    assert (terminated, truncated, info["unscored"]) == (True, False, False)
    assert info["score"].status.value == "scored", info["score"]
    return reward, info["components"]


def check_gold_and_garbage(env, *, maximum, component, garbage, num_tasks=200):
    """Gold earns the maximum and no garbage the component that says right, on every task."""
    assert len(env.tasks) >= num_tasks
    for index in range(num_tasks):
        task = env.tasks[index]
        reward, components = play(env, index, env.gold_action(task))
        assert reward == maximum, (index, task, components)
        replies = garbage(task)
        assert len(replies) >= 5
        for reply in replies:
            assert play(env, index, reply)[1][component] == 0.0, (index, task.prompt, reply)


def check_splits(make, *, num_problems=500):
    """Train, validation and shown problems share none, and a seed gives other problems."""
    train, val = (make(split=split, num_problems=num_problems) for split in ("train", "val"))
    asked = [{env.tasks[i].id for i in range(num_problems)} for env in (train, val)]
    assert not asked[0] & asked[1]
    assert make(split="test").tasks[3] == val.tasks[3]
    assert (len(make().tasks), len(make(split="val").tasks)) == (4096, 200)
    other = make(seed=1)
    assert [other.tasks[i] for i in range(20)] != [train.tasks[i] for i in range(20)]
    _, *shots, _ = make(few_shot=2).tasks[0].prompt
    assert [message.role for message in shots] == ["user", "assistant"] * 2
    questions = {shots[0].content, shots[2].content}
    for env in (train, val):
        assert not questions & {env.tasks[i].prompt[-1].content for i in range(num_problems)}


def check_other_process(env_class, **options):
    """Index, split and seed give the same tasks in a process of its own."""
    indices = [0, 1, 17, 150]
    env = env_class(**options)
    asked = json.dumps([env_class.__module__, env_class.__name__, options, indices])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked], capture_output=True, text=True, check=True
    )
    here = [[env.tasks[i].id, env.tasks[i].prompt[-1].content] for i in indices]
    assert json.loads(done.stdout) == here
