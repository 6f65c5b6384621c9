from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import rlgym_llm
from rlgym_llm.builtin_envs import BUILTIN_ENVS
from rlgym_llm.errors import ConfigError, PluginError, UnknownNameError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import announce_builtin_envs, find_env, make, register_envs
from rlgym_llm.specs import Kind

MAZE = """
    import gymnasium
    from rlgym_llm import EnvSpec, Kind, hookimpl

    class Maze(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(9)
        action_space = gymnasium.spaces.Discrete(4)

        def __init__(self, size, colour="red"):
            self.size, self.colour = size, colour

    @hookimpl
    def rlgym_register(kind):
        if kind is not Kind.ENV:
            return []
        entry = f"{__name__}:Maze"
        return [
            EnvSpec(name="maze", entry_point=entry, version=1, defaults={"size": 3}),
            EnvSpec(name="maze", entry_point=entry, version=2, defaults={"size": 5}),
            EnvSpec(name="raw-maze", entry_point=entry),
            EnvSpec(name="lost", entry_point="no_such_module_anywhere:Env"),
        ]
"""


@pytest.fixture
def mazes(tmp_path: Path) -> Plugins:
    path = tmp_path / "mazes.py"
    path.write_text(textwrap.dedent(MAZE))
    return Plugins.discover([path])


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Gymnasium's registry, put back after the test."""
    copy = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", copy)
    return copy


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestMake:
    @pytest.mark.parametrize(
        "spelling",
        [
            "math-gsm8k",
            "math-gsm8k-v0",
            "rlgym_llm/math-gsm8k",
            "rlgym_llm/math-gsm8k-v0",
            "rlgym_llm:rlgym_llm/math-gsm8k-v0",
        ],
    )
    def test_every_spelling(self, spelling: str) -> None:
        env = make(spelling, source="starter", num_problems=3)
        assert isinstance(env.unwrapped, rlgym_llm.TextEnv)
        assert env.spec is not None
        assert env.spec.id == "rlgym_llm/math-gsm8k-v0"
        assert len(env.unwrapped.tasks) == 3

    def test_same_wrappers_as_gymnasium(self) -> None:
        ours = make("math-gsm8k", source="starter")
        theirs = gymnasium.make(
            "rlgym_llm/math-gsm8k-v0", source="starter", disable_env_checker=True
        )
        assert str(ours) == str(theirs)
        assert ours.reset(seed=3)[0] == theirs.reset(seed=3)[0]

    def test_newest_version_and_defaults(self, mazes: Plugins) -> None:
        # v1 has size 3 and v2 has size 5 by default; the caller's word is over both.
        assert make("maze", plugins=mazes).unwrapped.size == 5  # type: ignore[attr-defined]
        assert make("maze-v1", plugins=mazes).unwrapped.size == 3  # type: ignore[attr-defined]
        assert make("maze-v1", plugins=mazes, size=8).unwrapped.size == 8  # type: ignore[attr-defined]

    def test_gymnasium_options_go_to_gymnasium(self, mazes: Plugins) -> None:
        env = make("maze", plugins=mazes, max_episode_steps=7, disable_env_checker=True)
        assert isinstance(env, gymnasium.wrappers.TimeLimit)
        assert "PassiveEnvChecker" not in str(env)

    def test_gymnasiums_checker_comes_where_it_is_asked_for(self) -> None:
        env = make("math-gsm8k", source="starter", disable_env_checker=False)
        assert "PassiveEnvChecker" in str(env)

    def test_arguments_are_checked_however_often_it_is_made(self, mazes: Plugins) -> None:
        for _ in range(2):
            make("maze", plugins=mazes, size=4)
            with pytest.raises(ConfigError, match="no argument 'sise'; did you mean 'size'"):
                make("maze", plugins=mazes, sise=4)
            with pytest.raises(ConfigError, match="needs the argument 'size'"):
                make("raw-maze", plugins=mazes)

    def test_unknown_id_has_the_nearest(self) -> None:
        with pytest.raises(UnknownNameError, match="environment 'math-gsm8'; did you mean 'math-g"):
            make("math-gsm8")

    @pytest.mark.parametrize("name", ["ALE/Pong-v5", "math-gsm8k-v", "rlgym_llm/", "-v0", " "])
    def test_ids_of_nothing(self, name: str) -> None:
        with pytest.raises(UnknownNameError, match="unknown environment"):
            make(name)

    @pytest.mark.parametrize("name", ["", None, 3])
    def test_no_ids_at_all(self, name: Any) -> None:
        with pytest.raises(UserError, match="an environment id looks like"):
            make(name)

    def test_version_mismatch_names_those_that_exist(self, mazes: Plugins) -> None:
        message = "environment 'maze' has no version 7; there is maze-v1, maze-v2"
        with pytest.raises(UserError, match=message):
            find_env("maze-v7", mazes)

    def test_wrong_argument_has_the_nearest(self, mazes: Plugins) -> None:
        with pytest.raises(ConfigError, match="'maze' has no argument 'color'; did you mean 'colo"):
            make("maze", plugins=mazes, color="blue")

    def test_arguments_of_the_base_class_are_known(self) -> None:
        env = make("math-gsm8k", source="starter", defer_scoring=True)
        assert env.unwrapped.defer_scoring  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="'defer_scorign'; did you mean 'defer_scoring'"):
            make("math-gsm8k", source="starter", defer_scorign=True)

    def test_missing_argument_is_named(self, mazes: Plugins) -> None:
        with pytest.raises(ConfigError, match="environment 'raw-maze' needs the argument 'size'"):
            make("raw-maze", plugins=mazes)
        assert make("raw-maze", plugins=mazes, size=2).unwrapped.size == 2  # type: ignore[attr-defined]

    def test_environment_that_does_not_import(self, mazes: Plugins) -> None:
        with pytest.raises(PluginError, match=r"environment 'lost' \(plugin .*mazes.py\) does not"):
            make("lost", plugins=mazes)


class TestGymnasium:
    def test_the_literal_table_is_what_the_plugin_brings(self) -> None:
        plugins = Plugins.discover()
        own = [s for s in plugins.specs(Kind.ENV) if "rlgym-llm " in plugins.owner(s)]
        assert sorted(spec.id for spec in BUILTIN_ENVS) == [spec.id for spec in own]

    @pytest.mark.parametrize("imports", ["rlgym_llm, gymnasium", "gymnasium, rlgym_llm"])
    def test_known_after_import_in_either_order(self, imports: str) -> None:
        program = f"""
            import {imports}
            print(gymnasium.make("rlgym_llm/math-gsm8k-v0", source="starter").spec.id)
        """
        assert run(program) == "rlgym_llm/math-gsm8k-v0"

    def test_known_by_module_prefix(self) -> None:
        program = """
            import gymnasium
            env = gymnasium.make("rlgym_llm:rlgym_llm/math-gsm8k-v0", source="starter")
            print(env.spec.id)
        """
        assert run(program) == "rlgym_llm/math-gsm8k-v0"

    def test_import_leaves_gymnasium_as_it_is(self) -> None:
        program = """
            import sys
            before = list(sys.meta_path)
            import rlgym_llm
            assert "gymnasium" not in sys.modules
            import gymnasium.wrappers
            assert sys.meta_path == before
            import gymnasium.envs.registration as registration
            assert registration.__spec__.origin == registration.__file__
            ours = [id for id in gymnasium.registry if id.startswith("rlgym_llm/")]
            print(len(gymnasium.registry) > 20, ours)
        """
        assert run(program) == f"True {[spec.id for spec in BUILTIN_ENVS]}"

    def test_announcing_twice_changes_nothing(self, registry: dict[str, Any]) -> None:
        announce_builtin_envs()
        once = dict(registry)
        announce_builtin_envs()
        assert registry == once
        assert not any(type(f).__name__ == "_AfterGymnasium" for f in sys.meta_path)

    def test_third_parties_come_by_register_envs(
        self, mazes: Plugins, registry: dict[str, Any]
    ) -> None:
        ids = register_envs(mazes)
        theirs = {f"rlgym_llm/{key}" for key in ("lost-v0", "maze-v1", "maze-v2", "raw-maze-v0")}
        assert set(ids) == theirs | {spec.id for spec in BUILTIN_ENVS}
        assert isinstance(registry["rlgym_llm/maze-v1"].entry_point, str)
        assert gymnasium.make("rlgym_llm/maze-v2").unwrapped.size == 5  # type: ignore[attr-defined]
        assert register_envs(mazes) == ids

    def test_plain_register_envs(self) -> None:
        assert "rlgym_llm/math-gsm8k-v0" in register_envs()


@pytest.mark.data
def test_case_dangling_setattr(bug_report: Callable[[str], dict[str, Any]], mazes: Plugins) -> None:
    """An option that nothing reads is refused rather than set aside."""
    case = bug_report("config-dangling_setattr")
    assert case["right"]["values"]["error"]
    with pytest.raises(ConfigError, match="no argument 'seq_len'"):
        make("maze", plugins=mazes, **case["input"]["sent"])
