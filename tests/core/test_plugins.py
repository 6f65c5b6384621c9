from __future__ import annotations

import copy
import pickle
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlgym_llm.builtin_envs import BUILTIN_ENVS
from rlgym_llm.errors import PluginError, UnknownNameError, UserError
from rlgym_llm.plugin_loader import HOOK_NAMES
from rlgym_llm.plugins import PluginRecord, Plugins
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.specs import SPEC_TYPES, EnvSpec, Kind, RewardSpec

CARDS = (ScoreCard(rollout_id="r", reward=1.0, status=CardStatus.SCORED, components={}),)

GOOD = """
    from rlgym_llm import Kind, RewardSpec, hookimpl

    @hookimpl
    def rlgym_register(kind):
        if kind is not Kind.REWARD:
            return []
        return [RewardSpec(name="{name}", entry_point=f"{{__name__}}:nothing")]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one entry point on the path: metadata and a module, as pip does."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def put(module: str, source: str, *, entry: str | None = None, dist: str | None = None) -> None:
        (site / f"{module}.py").write_text(textwrap.dedent(source))
        name = dist or f"rlgym-llm-{module.replace('_', '-')}"
        info = site / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[rlgym_llm]\n{entry or module} = {module}\n")

    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, source: str) -> Path:
    path.write_text(textwrap.dedent(source))
    return path


def record_of(plugins: Plugins, name: str) -> PluginRecord:
    [record] = [record for record in plugins.report() if record.name == name]
    return record


class TestBuiltIn:
    def test_who_brings_what(self) -> None:
        brings = {record.name: record.brings for record in Plugins.discover().report()}
        assert brings["core"] == {
            Kind.COMMAND: ("data", "env", "plugins", "report", "reward", "score", "view")
        }
        assert brings["envs"] == {
            Kind.ENV: tuple(sorted(f"{spec.name}-v{spec.version}" for spec in BUILTIN_ENVS)),
            Kind.REWARD: ("verifiers",),
            Kind.ROW_SOURCE: ("hf",),
        }
        assert brings["rewards"] == {
            Kind.COMMAND: ("verify",),
            Kind.REWARD: (
                "env",
                "exact_match",
                "format",
                "function",
                "judge",
                "length",
                "math",
                "multiple_choice",
                "prm",
                "regex",
                "repetition",
                "reward_model",
            ),
        }
        assert brings["trainers"] == {
            Kind.COMMAND: ("eval", "rollout", "train"),
            Kind.GENERATOR: ("hf", "openai", "vllm"),
            Kind.ADVANTAGE: (
                "dr_grpo",
                "gae",
                "gdpo",
                "gpg",
                "grpo",
                "grpo_step",
                "maxrl",
                "opo",
                "reinforce_plus_plus",
                "reinforce_plus_plus_baseline",
                "remax",
                "rloo",
            ),
            Kind.POLICY_LOSS: ("cispo", "dppo_tv", "gmpo", "gpg", "gspo", "ppo_clip", "sapo"),
        }

    def test_nothing_is_broken(self) -> None:
        plugins = Plugins.discover()
        assert [record.error for record in plugins.report()] == [None] * len(plugins.report())
        assert plugins.clashes() == []

    def test_records_tell_where_things_come_from(self) -> None:
        record = record_of(Plugins.discover(), "rewards")
        assert record.distribution == "rlgym-llm"
        assert record.entry_point == "rlgym_llm_rewards"
        assert record.version
        assert record.label == f"plugin 'rewards' of rlgym-llm {record.version}"

    def test_tables_are_sorted_and_of_their_type(self) -> None:
        plugins = Plugins.discover()
        for kind in Kind:
            table = plugins.table(kind)
            assert list(table) == sorted(table)
            assert all(type(spec) is SPEC_TYPES[kind] for spec in table.values())

    def test_typed_tables_are_the_tables(self) -> None:
        plugins = Plugins.discover()
        assert plugins.envs() == plugins.table(Kind.ENV)
        assert plugins.rewards() == plugins.table(Kind.REWARD)
        assert plugins.commands() == plugins.table(Kind.COMMAND)

    def test_every_reward_and_environment_loads_under_its_name(self) -> None:
        plugins = Plugins.discover()
        for name, found in plugins.rewards().items():
            assert plugins.load(found).name == name
        for spec in plugins.specs(Kind.ENV):
            assert plugins.load(spec).__module__ == spec.entry_point.partition(":")[0]

    def test_kinds_may_be_plain_strings(self) -> None:
        plugins = Plugins.discover()
        assert plugins.get("reward", "math").entry_point == "rlgym_llm_rewards.math:Math"  # type: ignore[arg-type]


class TestAsking:
    def test_unknown_name_has_the_nearest(self) -> None:
        with pytest.raises(UnknownNameError, match="unknown reward 'mth'; did you mean 'math'"):
            Plugins.discover().get(Kind.REWARD, "mth")

    def test_unknown_name_says_nothing_of_plugins_where_none_is_broken(self) -> None:
        with pytest.raises(UnknownNameError) as caught:
            Plugins.discover().get(Kind.POLICY_LOSS, "x")
        assert "broken" not in str(caught.value)
        assert str(caught.value).startswith("unknown policy loss 'x'")

    def test_environment_by_name_and_version(self) -> None:
        plugins = Plugins.discover()
        spec = plugins.get(Kind.ENV, "math-gsm8k")
        assert spec is plugins.get(Kind.ENV, "math-gsm8k-v0")
        assert isinstance(spec, EnvSpec)
        assert spec.version == 0


class TestThirdParty:
    def test_installed_plugin_is_found(self, install: Install) -> None:
        install("shiny", GOOD.format(name="shininess"))
        plugins = Plugins.discover()
        assert plugins.rewards()["shininess"].entry_point == "shiny:nothing"
        assert record_of(plugins, "shiny").label == "plugin 'shiny' of rlgym-llm-shiny 1.2"
        assert plugins.owner(plugins.get(Kind.REWARD, "shininess")) == (
            "plugin 'shiny' of rlgym-llm-shiny 1.2"
        )

    def test_two_versions_of_an_environment(self, install: Install) -> None:
        source = """
            from rlgym_llm import EnvSpec, Kind, hookimpl

            @hookimpl
            def rlgym_register(kind):
                envs = [EnvSpec(name="maze", entry_point="maze:A", version=v) for v in (10, 9)]
                return envs if kind is Kind.ENV else []
        """
        install("maze", source)
        plugins = Plugins.discover()
        specs = [s for s in plugins.specs(Kind.ENV) if isinstance(s, EnvSpec)]
        assert [spec.version for spec in specs if spec.name == "maze"] == [9, 10]
        assert plugins.envs()["maze"].version == 10
        assert plugins.get(Kind.ENV, "maze-v9").version == 9  # type: ignore[attr-defined]

    def test_an_instance_is_a_plugin_too(self, install: Install) -> None:
        source = """
            from rlgym_llm import RewardSpec, hookimpl

            class _Plugin:
                @hookimpl
                def rlgym_register(self, kind):
                    spec = RewardSpec(name="from_instance", entry_point="a:b")
                    return [spec] if kind == "reward" else []

            plugin = _Plugin()
        """
        install("inst", source)
        info = Path(sys.path[0]) / "rlgym_llm_inst-1.2.dist-info"
        (info / "entry_points.txt").write_text("[rlgym_llm]\ninst = inst:plugin\n")
        assert "from_instance" in Plugins.discover().rewards()

    def test_a_reward_whose_module_fails_names_the_plugin(self, install: Install) -> None:
        install("shiny", GOOD.format(name="shininess"))
        plugins = Plugins.discover()
        with pytest.raises(PluginError, match=r"reward 'shininess' \(plugin 'shiny' of .*nothing"):
            plugins.load(plugins.get(Kind.REWARD, "shininess"))


class TestBroken:
    def test_a_broken_plugin_stops_nobody(self, install: Install) -> None:
        install("aaa", GOOD.format(name="first"))
        install("bbb", "import no_such_module_anywhere")
        install("ccc", GOOD.format(name="last"))
        plugins = Plugins.discover()
        assert {"first", "last", "math"} <= set(plugins.rewards())
        record = record_of(plugins, "bbb")
        assert record.distribution == "rlgym-llm-bbb"
        assert record.reason == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
        assert record.error is not None
        assert record.error.startswith("Traceback (most recent call last):")
        assert 'bbb.py", line 1' in record.error

    def test_asking_in_vain_tells_of_the_broken(self, install: Install) -> None:
        install("bbb", "raise OSError('disk\\non fire')")
        with pytest.raises(UnknownNameError) as caught:
            Plugins.discover().get(Kind.REWARD, "elegance")
        message = str(caught.value)
        assert message.startswith("unknown reward 'elegance'")
        assert "plugin 'bbb' of rlgym-llm-bbb 1.2: OSError: disk)" in message
        assert "see `rlgym plugins`" in message

    def test_asking_for_what_it_would_bring(self, install: Install) -> None:
        source = """
            from rlgym_llm import RewardSpec, hookimpl

            @hookimpl
            def rlgym_register(kind):
                if kind == "generator":
                    raise RuntimeError("no GPU here")
                spec = RewardSpec(name="half", entry_point="a:b")
                return [spec] if kind == "reward" else []
        """
        install("bbb", source)
        plugins = Plugins.discover()
        assert "half" not in plugins.rewards()
        assert record_of(plugins, "bbb").brings == {Kind.REWARD: ("half",)}
        with pytest.raises(PluginError, match=r"reward 'half': .*RuntimeError: no GPU here"):
            plugins.get(Kind.REWARD, "half")

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("import sys; sys.exit(3)", "SystemExit: 3"),
            ("def f(:\n", "SyntaxError: invalid syntax (bbb.py, line 1)"),
            ("x = 1", "it implements no hook: define rlgym_register(kind)"),
            ("def rlgym_register(kind): return []", "rlgym_register is named like a hook but is"),
            ("def rlgym_regsiter(kind): return []", "did you mean 'rlgym_register'?"),
            (
                "from rlgym_llm import hookimpl\n@hookimpl\ndef rlgym_scord(cards): ...",
                "there is no hook 'rlgym_scord'; did you mean 'rlgym_scored'?",
            ),
            (
                "from rlgym_llm import hookimpl\n@hookimpl\ndef start(): ...",
                "there is no hook 'start' (hooks: rlgym_register, rlgym_scored)",
            ),
            (
                "from rlgym_llm import hookimpl\n@hookimpl\ndef rlgym_register(kinds): ...",
                "'kinds'",
            ),
        ],
    )
    def test_modules_that_are_no_plugin(self, install: Install, source: str, reason: str) -> None:
        install("bbb", source)
        record = record_of(Plugins.discover(), "bbb")
        assert record.reason is not None
        assert reason in record.reason
        assert "\n" not in record.reason

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ("None", "rlgym_register('env') returned None; return a list of EnvSpec, or []"),
            ("{}", "rlgym_register('env') returned a dict; return a list of EnvSpec"),
            ("['math']", "rlgym_register('env') returned a str ('math'); of this kind"),
            ("[REWARD]", "rlgym_register('env') returned a RewardSpec"),
            ("[REWARD, REWARD] if kind == 'reward' else []", "returned 'x' twice"),
            ("[env('a-v1')] if kind == 'env' else []", "'a-v1' cannot name an environment"),
            ("[env('a/b')] if kind == 'env' else []", "'a/b' cannot name an environment"),
            ("(yield)", "rlgym_register('env') returned a generator"),
        ],
    )
    def test_hooks_that_break_their_contract(
        self, install: Install, body: str, reason: str
    ) -> None:
        source = f"""
            from rlgym_llm import EnvSpec, RewardSpec, hookimpl

            REWARD = RewardSpec(name="x", entry_point="a:b")

            def env(name):
                return EnvSpec(name=name, entry_point="a:b")

            @hookimpl
            def rlgym_register(kind):
                return {body}
        """
        install("bbb", source)
        plugins = Plugins.discover()
        record = record_of(plugins, "bbb")
        assert record.reason is not None
        assert reason in record.reason
        assert record.error == record.reason  # our own words need no traceback
        assert "math" in plugins.rewards()

    def test_a_class_is_no_plugin(self, install: Install) -> None:
        install("bbb", "class Plugin: ...")
        info = Path(sys.path[0]) / "rlgym_llm_bbb-1.2.dist-info"
        (info / "entry_points.txt").write_text("[rlgym_llm]\nbbb = bbb:Plugin\n")
        assert "names the class Plugin" in str(record_of(Plugins.discover(), "bbb").reason)

    def test_metadata_that_cannot_be_read(self, install: Install) -> None:
        install("bbb", GOOD.format(name="never"))
        info = Path(sys.path[0]) / "rlgym_llm_bbb-1.2.dist-info"
        (info / "entry_points.txt").write_text("[rlgym_llm]\nno equals sign\n")
        plugins = Plugins.discover()
        assert record_of(plugins, "rlgym-llm-bbb").reason is not None
        assert "math" in plugins.rewards()

    def test_metadata_of_strangers_does_not_matter(self, install: Install) -> None:
        install("bbb", GOOD.format(name="never"), dist="stranger")
        info = Path(sys.path[0]) / "stranger-1.2.dist-info"
        (info / "entry_points.txt").write_text("[console_scripts]\nno equals sign\n")
        assert not any(record.reason for record in Plugins.discover().report())
        (info / "entry_points.txt").write_bytes(b"\xff\xfe[rlgym_llm]")
        assert not any(record.reason for record in Plugins.discover().report())


class TestClashes:
    def test_two_plugins_bring_one_name(self, install: Install) -> None:
        install("one", GOOD.format(name="twin"))
        install("two", GOOD.format(name="twin"))
        plugins = Plugins.discover()
        assert "twin" not in plugins.rewards()
        both = r"plugin 'one' of rlgym-llm-one 1.2 and plugin 'two' of rlgym-llm-two 1.2"
        with pytest.raises(PluginError, match=f"reward 'twin' is brought by {both}; rename"):
            plugins.get(Kind.REWARD, "twin")
        [line] = plugins.clashes()
        assert line.startswith("reward 'twin' is brought by")

    def test_a_stranger_does_not_replace_a_built_in_unseen(self, install: Install) -> None:
        install("one", GOOD.format(name="math"))
        with pytest.raises(PluginError, match="'math' is brought by plugin 'rewards' of rlgym-llm"):
            Plugins.discover().get(Kind.REWARD, "math")

    def test_one_name_in_two_kinds_is_fine(self, install: Install) -> None:
        install("one", GOOD.format(name="train"))
        plugins = Plugins.discover()
        assert plugins.clashes() == []
        assert isinstance(plugins.get(Kind.REWARD, "train"), RewardSpec)

    def test_two_entry_points_of_one_name(self, install: Install) -> None:
        install("one", GOOD.format(name="first"), entry="same")
        install("two", GOOD.format(name="second"), entry="same")
        plugins = Plugins.discover()
        assert "first" in plugins.rewards()
        with pytest.raises(
            PluginError,
            match=r"reward 'second': plugin 'same' of rlgym-llm-two 1.2 is broken: its entry point "
            r"is named like plugin 'same' of rlgym-llm-one 1.2; rename one",
        ):
            plugins.get(Kind.REWARD, "second")

    def test_a_second_copy_on_the_path_is_no_clash(
        self, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install("one", GOOD.format(name="first"))
        copied = tmp_path / "again"
        info = "rlgym_llm_one-1.2.dist-info"
        (copied / info).mkdir(parents=True)
        for file in ("METADATA", "entry_points.txt"):
            text = (tmp_path / "site" / info / file).read_text()
            (copied / info / file).write_text(text.replace("rlgym-llm-one", "rlgym_llm.One"))
        monkeypatch.setattr(sys, "path", [*sys.path, str(copied)])
        plugins = Plugins.discover()
        assert "first" in plugins.rewards()
        assert plugins.clashes() == []


class TestFiles:
    def test_a_file_is_a_plugin(self, tmp_path: Path) -> None:
        path = write(tmp_path / "my-own.py", GOOD.format(name="mine") + "\n    nothing = 7\n")
        plugins = Plugins.discover([path])
        spec = plugins.get(Kind.REWARD, "mine")
        assert plugins.load(spec) == 7
        record = plugins.report()[-1]
        assert (record.name, record.distribution) == (str(path), None)
        assert record.label == f"plugin {path}"

    def test_the_same_file_twice_counts_once(self, tmp_path: Path) -> None:
        path = write(tmp_path / "mine.py", GOOD.format(name="mine"))
        plugins = Plugins.discover([path, str(path), tmp_path / "x" / ".." / "mine.py"])
        assert plugins.clashes() == []
        assert plugins.get(Kind.REWARD, "mine") in Plugins.discover([path]).specs(Kind.REWARD)

    def test_files_of_one_name_do_not_meet(self, tmp_path: Path) -> None:
        paths = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            paths.append(write(tmp_path / name / "mine.py", GOOD.format(name=name)))
        assert {"one", "two"} <= set(Plugins.discover(paths).rewards())

    def test_a_file_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"plugin file .*gone\.py does not exist"):
            Plugins.discover([tmp_path / "gone.py"])

    def test_a_broken_file_was_asked_for(self, tmp_path: Path) -> None:
        path = write(tmp_path / "mine.py", "1 / 0")
        with pytest.raises(
            PluginError, match=rf"ZeroDivisionError: .*`rlgym plugins --plugin {path}`"
        ):
            Plugins.discover([path])
        record = Plugins.discover([path], tolerant=True).report()[-1]
        assert record.reason == "ZeroDivisionError: division by zero"
        write(path, GOOD.format(name="mended"))  # a failed import leaves nothing behind
        assert "mended" in Plugins.discover([path]).rewards()

    def test_pickles_and_copies_find_the_plugins_again(self, tmp_path: Path) -> None:
        path = write(tmp_path / "mine.py", GOOD.format(name="mine"))
        plugins = Plugins.discover([path])
        for other in (pickle.loads(pickle.dumps(plugins)), copy.deepcopy(plugins)):
            assert other.report() == plugins.report()
            assert other.rewards() == plugins.rewards()


OBSERVER = """
    from rlgym_llm import hookimpl

    heard = []

    @hookimpl
    def rlgym_scored(cards):
        heard.append(tuple(cards))
        {then}
"""


class TestObservers:
    def test_one_that_raises_does_not_stop_the_others(self, install: Install) -> None:
        install("aaa", OBSERVER.format(then="pass"))
        install("bbb", OBSERVER.format(then="raise KeyError('gone')"))
        install("ccc", OBSERVER.format(then="pass"))
        plugins = Plugins.discover()
        with pytest.warns(RuntimeWarning, match="plugin 'bbb' of rlgym-llm-bbb 1.2: rlgym_scored"):
            plugins.scored(CARDS)
        for name in ("aaa", "bbb", "ccc"):
            assert sys.modules[name].heard == [CARDS]
        with warnings.catch_warnings():  # the second time in silence
            warnings.simplefilter("error")
            plugins.scored(CARDS)
        assert len(sys.modules["ccc"].heard) == 2

    def test_a_warning_made_an_error_comes_after_all_were_told(self, install: Install) -> None:
        install("aaa", OBSERVER.format(then="1 / 0"))
        install("ccc", OBSERVER.format(then="pass"))
        plugins = Plugins.discover()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning):
                plugins.scored(CARDS)
        assert sys.modules["ccc"].heard == [CARDS]

    def test_no_observer_no_trouble(self) -> None:
        Plugins.discover().scored(CARDS)


@pytest.mark.data
def test_case_one_plugin_error_skips_others(
    install: Install, bug_report: Callable[[str], dict[str, object]]
) -> None:
    """pluggy stops at the first hook that raises; here the others are heard all the same."""
    case = bug_report("plugin-one_plugin_error_skips_others")
    registered = case["input"]["registered"]  # type: ignore[index]
    for plugin in registered:
        name = plugin.partition("(")[0]
        then = "raise ValueError('b')" if plugin.endswith("(raises)") else "pass"
        source = textwrap.dedent(GOOD.format(name=f"reward_{name}"))
        install(f"plugin_{name}", source + textwrap.dedent(OBSERVER.format(then=then)))
    install("plugin_d", "raise ImportError('at the door')")
    plugins = Plugins.discover()
    assert {"reward_a", "reward_b", "reward_c"} <= set(plugins.rewards())
    with pytest.warns(RuntimeWarning, match="plugin_b"):
        plugins.scored(CARDS)
    scored = [x for x in "abc" if sys.modules[f"plugin_{x}"].heard == [CARDS]]
    assert set(case["right"]["values"]["scored"]) <= set(scored)  # type: ignore[index]
    assert record_of(plugins, "plugin_d").distribution == "rlgym-llm-plugin-d"


@pytest.mark.data
def test_case_none_results_dropped(
    install: Install, bug_report: Callable[[str], dict[str, object]]
) -> None:
    """pluggy drops None and the rest moves up; here None is that plugin's error, in its place."""
    case = bug_report("plugin-none_results_dropped")
    returns = case["input"]["returns"]  # type: ignore[index]
    for name in case["input"]["registered"]:  # type: ignore[index]
        source = textwrap.dedent(GOOD.format(name=f"reward_{name}"))
        if returns[name] is None:
            source = source.replace("return []", "return None")
        install(f"plugin_{name}", source)
    plugins = Plugins.discover()
    for name, value in case["right"]["values"].items():  # type: ignore[index]
        record = record_of(plugins, f"plugin_{name}")
        assert record.brings == {Kind.REWARD: (f"reward_{name}",)}
        assert (f"reward_{name}" in plugins.rewards()) == (value is not None)


def test_hook_names() -> None:
    assert HOOK_NAMES == ("rlgym_register", "rlgym_scored")
