"""The generator over an OpenAI-compatible server, against real HTTP servers of this process."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import rlgym_llm_trainers
import torch
from rlgym_llm_trainers.commands.eval_cli import main
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.openai_generator import OpenAIGenerator
from rlgym_llm_trainers.models.policy import load_policy

from rlgym_llm.config import parse_command
from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.errors import ConfigError, GeneratorError, UserError, WeightSyncError
from rlgym_llm.generate import AsyncGenerator, GenerateRequest, Generator, SamplingParams
from rlgym_llm.multi_turn import MultiTurnEnv
from rlgym_llm.plugins import Plugins
from rlgym_llm.rollout import group_specs
from rlgym_llm.specs import GeneratorSpec, Kind
from rlgym_llm.store import read_rollouts
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import FinishReason, Message, RolloutStatus, Task

KEY = "sk-not-to-be-seen"
ASKED = SamplingParams(max_new_tokens=8)
Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@dataclass
class Server:
    """What the test has the server answer, and what it saw."""

    url: str = ""
    answer: Callable[[Any, int], Answer] = lambda sent, number: (404, "nothing here")
    """Takes a POST's JSON and its number from 0; gives status, body and headers."""
    models: Any = field(default_factory=lambda: {"data": [{"id": "tiny"}]})
    """What GET answers with."""
    requests: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    """Set at the end, for answers that hang."""
    now: int = 0
    most: int = 0
    """How many POSTs were inside at once."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with self.lock:
            self.paths.append(path)
            self.keys.append(headers.get("Authorization"))
        return self.post(body) if method == "POST" else (200, self.models)

    def post(self, body: bytes) -> Answer:
        with self.lock:
            number = len(self.requests)
            self.requests.append(json.loads(body))
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return self.answer(self.requests[number], number)
        finally:
            with self.lock:
                self.now -= 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Any]) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    seen = Server()

    with serve(seen.handle) as url:
        seen.url = f"{url}/v1"
        yield seen
        seen.released.set()


@pytest.fixture
def make(policy, server) -> Iterator[Callable[..., OpenAIGenerator]]:
    """``make(timeout_s=5.0)``: the generator over the server, with the tiny model's tokenizer."""
    made = []

    def make(**keys: Any) -> OpenAIGenerator:
        keys = {"base_url": server.url, "model": "tiny", "max_retries": 0, **keys}
        words = [
            f"rollout.server.{name}={'null' if value is None else value}"
            for name, value in keys.items()
        ]
        generator = OpenAIGenerator.from_config(policy, parse_command(words).config)
        made.append(generator)
        return generator

    yield make
    for generator in made:
        generator.close()


def says(policy, text: str, /, *, told: bool = True, **changes: Any) -> Answer:
    """A completion as vLLM puts it, with ids and log-probs -1, -2, ..., or with its text alone."""
    ids = [*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id]
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    if told:
        logprobs = {"token_logprobs": [-1.0 - place for place in range(len(ids))]}
        choice |= {"token_ids": ids, "logprobs": logprobs, "stop_reason": None}
    return 200, {"object": "text_completion", "choices": [{**choice, **changes}]}


def asked(policy, text: str = "2+3", **changes: Any) -> GenerateRequest:
    ids = tuple(policy.tokenizer(text)["input_ids"])
    return GenerateRequest(
        prompt_token_ids=ids, params=dataclasses.replace(ASKED, **changes), seed=7
    )


def test_it_is_a_generator_of_both_kinds_and_has_its_own_weights(make):
    generator = make()
    assert isinstance(generator, Generator)
    assert isinstance(generator, AsyncGenerator)
    assert generator.has_own_weights
    assert generator.policy_version == 0


def test_ids_and_logprobs_are_taken_as_the_server_sampled_them(policy, server, make):
    server.answer = lambda sent, number: says(policy, "5")
    request = asked(policy)
    [completion] = make().generate([request])
    five, end = policy.tokenizer("5")["input_ids"][0], policy.tokenizer.eos_token_id
    assert completion.text == "5"
    assert completion.raw_text is None
    assert completion.token_ids == (five, end)
    assert completion.logprobs == (-1.0, -2.0)
    assert completion.version_spans == ((0, 2, 0),)
    assert completion.finish_reason is FinishReason.STOP
    assert server.paths == ["/v1/completions"]
    assert server.keys == [None]
    # Whatever a server would do by itself is said, as otherwise it samples from something else.
    assert server.requests == [
        {
            "model": "tiny",
            "prompt": list(request.prompt_token_ids),
            "max_tokens": 8,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": 7,
            "n": 1,
            "logprobs": 1,
            "stop_token_ids": [end],
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
    ]


@pytest.mark.parametrize("changes", [{"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 3}])
def test_logprobs_of_another_distribution_are_not_asked_for(policy, server, make, changes):
    server.answer = lambda sent, number: says(policy, "5", logprobs=None)
    [completion] = make().generate([asked(policy, **changes)])
    assert completion.num_tokens == 2
    assert completion.logprobs is None
    assert "logprobs" not in server.requests[0]


def test_without_ids_the_text_is_encoded_and_that_is_said_once(policy, server, make, caplog):
    server.answer = lambda sent, number: says(policy, "5", told=False)
    completions = make().generate([asked(policy)] * 3)
    five, end = policy.tokenizer("5")["input_ids"][0], policy.tokenizer.eos_token_id
    assert {one.token_ids for one in completions} == {(five, end)}  # the end that it must have met
    assert {one.logprobs for one in completions} == {None}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "returns no token ids" in caplog.text


def test_a_text_that_was_cut_gets_no_end(policy, server, make):
    server.answer = lambda sent, number: says(policy, "5", told=False, finish_reason="length")
    [completion] = make().generate([asked(policy)])
    assert completion.token_ids == tuple(policy.tokenizer("5")["input_ids"])
    assert completion.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("told", [True, False])
def test_special_tokens_stand_in_the_raw_text_only(policy, server, make, told):
    server.answer = lambda sent, number: says(policy, "<pad>5", told=told)
    [completion] = make().generate([asked(policy)])
    assert completion.text == "5"
    assert completion.raw_text.replace(" ", "") == "<pad>5"  # this tokenizer puts blanks between
    assert completion.token_ids[0] == policy.pad_token_id
    assert completion.num_tokens == 3


def test_a_stop_id_of_the_request_ends_a_completion_and_stays(policy, server, make, caplog):
    dot = policy.tokenizer(".")["input_ids"][0]
    five = policy.tokenizer("5")["input_ids"][0]
    server.answer = lambda sent, number: says(
        policy, "5", token_ids=[five, dot], stop_reason=dot, logprobs=None
    )
    [completion] = make().generate([asked(policy, stop_token_ids=(dot,))])
    assert completion.token_ids == (five, dot)
    assert server.requests[0]["stop_token_ids"] == sorted([policy.tokenizer.eos_token_id, dot])
    assert not caplog.records


class TestStopStrings:
    STOP = ("</a>", "2b")

    def test_they_are_asked_for_with_the_text_that_holds_them(self, policy, server, make):
        server.answer = lambda sent, number: says(policy, "5")
        make().generate([asked(policy, stop=self.STOP)])
        assert server.requests[0]["stop"] == ["</a>", "2b"]
        assert server.requests[0]["include_stop_str_in_output"] is True

    def test_the_ids_of_a_server_are_taken_as_they_are(self, policy, server, make, caplog):
        """Here </a> ends within what was sampled: the ids go on, the server's text does not."""
        ids = policy.tokenizer("5</a>.")["input_ids"]
        server.answer = lambda sent, number: says(
            policy, "5</a>", token_ids=ids, stop_reason="</a>", logprobs=None
        )
        [completion] = make().generate([asked(policy, stop=self.STOP)])
        assert completion.token_ids == tuple(ids)
        assert completion.text == policy.tokenizer.decode(ids)
        assert completion.finish_reason is FinishReason.STOP
        assert not caplog.records

    @pytest.mark.parametrize("shown", ["5", "5<eos>"])
    def test_an_end_of_text_may_be_shown_as_well(self, policy, server, make, caplog, shown):
        server.answer = lambda sent, number: says(policy, "5", text=shown)
        [completion] = make().generate([asked(policy, stop=self.STOP)])
        assert completion.text == "5"
        assert completion.raw_text is None
        assert completion.token_ids[-1] == policy.tokenizer.eos_token_id
        assert not caplog.records

    @pytest.mark.parametrize(
        ("shown", "told"),
        [("5</a>", "</a>"), ("5</a>", None), ("5", "</a>")],
        ids=["shown-and-told", "shown", "told"],
    )
    def test_text_alone_gets_the_string_and_no_end(self, policy, server, make, shown, told):
        server.answer = lambda sent, number: says(policy, shown, told=False, stop_reason=told)
        [completion] = make().generate([asked(policy, stop=self.STOP)])
        assert completion.text == "5</a>"
        assert completion.token_ids == tuple(policy.tokenizer("5</a>")["input_ids"])

    def test_text_alone_that_neither_shows_nor_tells_it(self, policy, server, make, caplog):
        server.answer = lambda sent, number: says(policy, "5", told=False)
        generator = make()
        for _ in range(2):
            [completion] = generator.generate([asked(policy, stop=self.STOP)])
            assert completion.text == "5"
            assert completion.token_ids[-1] == policy.tokenizer.eos_token_id
        assert caplog.text.count("does not tell whether a stop string ended a completion") == 1

    def test_a_server_need_not_know_how_to_show_them(self, policy, server, make):
        def answer(sent: Any, number: int) -> Answer:
            if "include_stop_str_in_output" in sent:
                return 422, {"detail": "extra field: include_stop_str_in_output"}
            return says(policy, "5", told=False, stop_reason="2b")

        server.answer = answer
        generator = make()
        for _ in range(2):
            [completion] = generator.generate([asked(policy, stop=self.STOP)])
            assert completion.text == "52b"
        assert len(server.requests) == 3

    def test_a_text_that_was_cut_is_no_stop(self, policy, server, make):
        server.answer = lambda sent, number: says(policy, "5", told=False, finish_reason="length")
        [completion] = make().generate([asked(policy, stop=("5",))])
        assert completion.finish_reason is FinishReason.LENGTH
        assert completion.token_ids == tuple(policy.tokenizer("5")["input_ids"])


def test_a_server_of_another_model_is_noticed(policy, server, make, caplog):
    server.answer = lambda sent, number: says(policy, "5", text="Paris")
    make().generate([asked(policy), asked(policy)])
    assert len(caplog.records) == 1
    assert "is it the same model?" in caplog.text


def test_the_next_turn_continues_the_ids(policy, server, make):
    """The second prompt is the first, what was sampled, and the reply: nothing is encoded twice."""
    ids = policy.tokenizer("ab")["input_ids"]
    end = policy.tokenizer.eos_token_id

    class Twice(MultiTurnEnv[None]):
        def respond(self, state: None, action: Any) -> str:
            return "go on"

    server.answer = lambda sent, number: says(policy, "ab")
    generator = make()
    task = Task(prompt=(Message(role="user", content="hi"),), answer="x")
    [rollout] = episodes(generator, lambda: Twice(tasks=ListTasks([task]), max_turns=2), [task])
    first, second = (request["prompt"] for request in server.requests)
    reply = (Message(role="user", content="go on"),)
    assert first == policy.tokenizer("<u>hi<eos><a>")["input_ids"]
    assert second == [*first, *ids, end, *generator.encode_reply(reply)]
    assert second[len(first) + 3 :] == policy.tokenizer("<u>go on<eos><a>")["input_ids"]
    assert rollout.status is RolloutStatus.OK
    assert [turn.completion.token_ids for turn in rollout.turns] == [(*ids, end)] * 2


def episodes(generator, make_env, tasks):
    async def run():
        runner = EpisodeRunner(make_env=make_env, generator=generator, params=ASKED)
        try:
            return await runner.run_all(group_specs(tasks, group_size=1, seed=0))
        finally:
            await runner.aclose()
            await generator.aclose()

    return asyncio.run(run())


class Once(MultiTurnEnv[None]):
    def respond(self, state: None, action: Any) -> str:
        return "done"


def once(tasks):
    return lambda: Once(tasks=ListTasks(tasks), max_turns=1)


def test_a_refused_request_fails_its_own_episode(policy, server, make):
    def answer(sent: Any, number: int) -> Answer:
        if len(sent["prompt"]) > 8:
            return 400, {"error": {"message": "maximum context length is 8 tokens"}}
        return says(policy, "5")

    server.answer = answer
    tasks = [Task(prompt="short", answer="5"), Task(prompt="much too long", answer="5")]
    good, bad = episodes(make(max_retries=3), once(tasks), tasks)
    assert good.status is RolloutStatus.OK
    assert bad.status is RolloutStatus.GENERATOR_ERROR
    assert f"{server.url}/completions answered 400" in bad.error
    assert "maximum context length" in bad.error
    assert "\n" not in bad.error
    assert len(server.requests) == 2  # it would be refused again


def test_a_deadline_is_the_episodes_own_too(policy, server, make):
    def answer(sent: Any, number: int) -> Answer:
        if len(sent["prompt"]) > 8:
            server.released.wait(20)
        return says(policy, "5")

    server.answer = answer
    tasks = [Task(prompt="short", answer="5"), Task(prompt="much too long", answer="5")]
    good, late = episodes(make(timeout_s=0.5, max_retries=3), once(tasks), tasks)
    assert good.status is RolloutStatus.OK
    assert late.status is RolloutStatus.TIMEOUT
    assert "gave no completion in 0.5 s; raise --rollout.server.timeout_s" in late.error


@pytest.mark.parametrize(
    "failure", [(503, "loading"), (429, "slow down", {"Retry-After": "0"}), (500, "oops")]
)
def test_what_may_pass_is_asked_again(policy, server, make, failure):
    server.answer = lambda sent, number: failure if number < 2 else says(policy, "5")
    [completion] = make(max_retries=2).generate([asked(policy)])
    assert completion.text == "5"
    assert len(server.requests) == 3


def test_retries_come_to_an_end(policy, server, make):
    server.answer = lambda sent, number: (429, "slow down", {"Retry-After": "0"})
    with pytest.raises(GeneratorError, match=r"answered 429: slow down \(3 attempts\)"):
        make(max_retries=2).generate([asked(policy)])
    assert len(server.requests) == 3


def test_a_long_retry_after_does_not_outlast_the_deadline(policy, server, make):
    server.answer = lambda sent, number: (429, "slow down", {"Retry-After": "60"})
    with pytest.raises(TimeoutError, match=r"in 0\.5 s"):
        make(max_retries=2, timeout_s=0.5).generate([asked(policy)])
    assert len(server.requests) == 1


def test_nobody_listens(policy, make):
    with pytest.raises(GeneratorError, match="/v1/completions cannot be reached"):
        make(base_url="http://127.0.0.1:1/v1").generate([asked(policy)])


@pytest.mark.parametrize("how", ["generate", "sample"])
def test_no_more_than_concurrency_are_asked_at_once(policy, server, make, how):
    inside = threading.Barrier(3)

    def answer(sent: Any, number: int) -> Answer:
        inside.wait(timeout=20)  # nobody goes on before three are in
        server.released.wait(0.2)  # leaves a fourth the time to come in, if it is sent
        return says(policy, "5")

    server.answer = answer
    generator, requests = make(concurrency=3), [asked(policy)] * 9

    async def sample_all():
        return await asyncio.gather(*map(generator.sample, requests))

    found = generator.generate(requests) if how == "generate" else asyncio.run(sample_all())
    assert [completion.text for completion in found] == ["5"] * 9
    assert server.most == 3


def test_completions_come_in_the_order_of_the_requests(policy, server, make):
    first_may_go = threading.Event()

    def answer(sent: Any, number: int) -> Answer:
        text = policy.tokenizer.decode(sent["prompt"][-1:])
        if text == "a":
            assert first_may_go.wait(20)
        else:
            first_may_go.set()
        return says(policy, text)

    server.answer = answer
    found = make().generate([asked(policy, text) for text in "abc"])
    assert [completion.text for completion in found] == ["a", "b", "c"]


def test_the_key_goes_out_and_into_no_message(policy, server, make, monkeypatch, caplog, capfd):
    monkeypatch.setenv("MY_KEY", KEY)
    generator = make(api_key_env="MY_KEY", max_retries=1)
    for status, kind in ((400, GeneratorError), (500, GeneratorError), (401, UserError)):
        server.answer = lambda sent, number, status=status: (status, f"bad key {KEY}")
        with pytest.raises(kind) as caught:
            generator.generate([asked(policy)])
        assert KEY not in str(caught.value)
        assert "bad key ***" in str(caught.value)
    assert "MY_KEY" in str(caught.value)
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert KEY not in caplog.text + "".join(capfd.readouterr()) + repr(vars(generator))


def test_a_key_that_cannot_be_sent_is_not_shown(make, monkeypatch):
    monkeypatch.setenv("MY_KEY", f"{KEY}\nX-Other: 1")
    with pytest.raises(UserError, match="MY_KEY holds characters that no key has") as caught:
        make(api_key_env="MY_KEY")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_fails_for_all_ends_the_run(policy, server, make, status):
    server.answer = lambda sent, number: (status, "no")
    with pytest.raises(UserError, match=f"answered {status}: no; .*--rollout.server"):
        make(max_retries=3).generate([asked(policy)])
    assert len(server.requests) == 1


class TestServersWithFewerFields:
    """A server that refuses what OpenAI's own API does not have."""

    def strict(self, policy, *unknown: str) -> Callable[[Any, int], Answer]:
        def answer(sent: Any, number: int) -> Answer:
            if named := [name for name in unknown if name in sent]:
                return 400, {"error": {"message": f"Unrecognized request argument: {named[0]}"}}
            return says(policy, "5", told=False)

        return answer

    def test_they_are_left_out_from_then_on(self, policy, server, make):
        server.answer = self.strict(policy, "return_token_ids", "top_k", "stop_token_ids")
        generator = make()
        assert generator.generate([asked(policy)])[0].text == "5"
        assert len(server.requests) == 4
        assert generator.generate([asked(policy)])[0].text == "5"
        assert len(server.requests) == 5
        assert "min_p" in server.requests[4]

    def test_not_those_that_were_asked_for(self, policy, server, make):
        server.answer = self.strict(policy, "top_k", "stop_token_ids")
        generator = make()
        for changes in ({"top_k": 5}, {"stop_token_ids": (9,)}):
            [name] = changes
            with pytest.raises(GeneratorError, match=f"Unrecognized request argument: {name}"):
                generator.generate([asked(policy, **changes)])


class TestTheModelsName:
    def test_the_only_one_is_taken(self, policy, server, make):
        server.answer = lambda sent, number: says(policy, "5")
        make(model=None).generate([asked(policy)])
        assert server.paths == ["/v1/models", "/v1/completions"]
        assert server.requests[0]["model"] == "tiny"

    @pytest.mark.parametrize(
        ("models", "problem"),
        [
            ({"data": [{"id": "a"}, {"id": "b"}]}, r"lists 2 models \(a, b\)"),
            ({"data": []}, r"lists 0 models \(none\)"),
            ({"models": ["a"]}, "does not list models"),
            ([], "does not list models"),
            ("<html>", "did not answer in JSON"),
        ],
    )
    def test_else_it_must_be_given(self, server, make, models, problem):
        server.models = models
        with pytest.raises(UserError, match=f"/v1/models .*{problem}.*--rollout.server.model NAME"):
            make(model=None)

    def test_nobody_listens(self, make):
        with pytest.raises(UserError, match=r"cannot be reached.*--rollout.server.base_url"):
            make(model=None, base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"logprobs": {"token_logprobs": [-1.0]}}, "1 log-probs for 2 token ids"),
        ({"logprobs": {"token_logprobs": [-1.0, None]}}, "TypeError"),
        ({"logprobs": {"token_logprobs": [-1.0, float("nan")]}}, "not finite"),
        ({"logprobs": {"tokens": ["5", "."]}}, "token_logprobs"),
        ({"logprobs": {"token_logprobs": [-1.0, 0.5]}}, "above 0: 0.5"),
        ({"token_ids": [5, -1]}, "no whole number"),
        ({"token_ids": ["5", "6"]}, "no whole number"),
        ({"token_ids": [5] * 9}, "9 token ids, and 8 were asked for"),
        ({"prompt_token_ids": [1, 2]}, "another prompt than it was given"),
        ({"finish_reason": "abort"}, "ended with 'abort'"),
        ({"finish_reason": None}, "ended with None"),
        ({"text": None}, "no string"),
    ],
)
def test_a_reply_that_cannot_be_right_is_an_error(policy, server, make, changes, problem):
    server.answer = lambda sent, number: says(policy, "5", **changes)
    with pytest.raises(GeneratorError, match=f"answered out of shape: .*{problem}"):
        make().generate([asked(policy)])


def test_an_id_that_the_model_does_not_have_is_an_error(policy, server, make):
    num_ids = policy.model.config.vocab_size
    server.answer = lambda sent, number: says(policy, "5", token_ids=[5, num_ids])
    with pytest.raises(GeneratorError, match=rf"the id {num_ids}, .*--model .*up to {num_ids - 1}"):
        make().generate([asked(policy)])


@pytest.mark.parametrize("body", [[], {}, {"choices": []}, {"choices": ["5"]}, "null", "7"])
def test_a_server_that_talks_nonsense(policy, server, make, body):
    server.answer = lambda sent, number: (200, body)
    with pytest.raises(GeneratorError, match="answered out of shape"):
        make().generate([asked(policy)])


def test_training_is_refused(make):
    generator = make()
    assert generator.sync(0) == {}
    with pytest.raises(WeightSyncError, match=r"weights of version 1: .* is for evaluation"):
        generator.sync(1)
    assert generator.policy_version == 0
    spec = Plugins.discover(()).get(Kind.GENERATOR, "openai")
    assert isinstance(spec, GeneratorSpec)
    assert not spec.trains
    assert spec.load() == OpenAIGenerator.from_config


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, "needs a server; give --rollout.server.base_url"),
        ("localhost:8000", "is no address"),
        ("http://me:secret@host/v1", "carries a name or password"),
    ],
)
def test_an_address_that_is_none(make, url, problem):
    with pytest.raises(UserError, match=problem) as caught:
        make(base_url=url)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ConfigError) == (url is None)


def test_eval_by_a_server_gives_what_eval_in_this_process_gives(server, tmp_path, capsys):
    """The starter model, greedy, once behind HTTP and once not; one sequence at a time in both."""
    path = str(Path(rlgym_llm_trainers.__file__).parent / "starter_model")
    policy = load_policy(path, device=torch.device("cpu"))
    behind = HFGenerator(policy)

    def answer(sent: Any, number: int) -> Answer:
        params = SamplingParams(
            max_new_tokens=sent["max_tokens"],
            temperature=sent["temperature"],
            stop_token_ids=tuple(sent["stop_token_ids"]),
            stop=tuple(sent["stop"]),
        )
        request = GenerateRequest(
            prompt_token_ids=tuple(sent["prompt"]), params=params, seed=sent["seed"]
        )
        with server.lock:  # one at a time
            [done] = behind.generate([request])
        choice = {"index": 0, "text": done.raw_text or done.text, "token_ids": done.token_ids}
        return 200, {"choices": [{**choice, "finish_reason": done.finish_reason}]}

    server.answer = answer
    flags = ["--model", path, "--max-tasks", "4", "--trainer.num_threads", "1"]
    flags += ["--env.kwargs.source", "starter", "--data.max_response_length", "48"]
    flags += ["--rollout.stop", '[" is 2"]']  # some of the answers
    flags += ["--rollout.max_num_seqs"]
    here, there = tmp_path / "here", tmp_path / "there"
    over_http = ["--rollout.name", "openai", "--rollout.server.base_url", server.url]
    assert main([*flags, "1", "--output", str(here)]) == 0
    assert main([*flags, "4", "--output", str(there), *over_http]) == 0
    capsys.readouterr()

    assert len(server.requests) == 4
    for ours, theirs in zip(
        *(read_rollouts(folder / "rollouts.jsonl").records for folder in (here, there)), strict=True
    ):
        assert theirs.rollout.id == ours.rollout.id
        assert theirs.rollout.text == ours.rollout.text
        [one], [other] = ours.rollout.turns, theirs.rollout.turns
        assert other.completion.token_ids == one.completion.token_ids
        assert other.completion.logprobs is None  # greedy is no distribution
        assert theirs.card == ours.card
    ours, theirs = (json.loads((folder / "summary.json").read_text()) for folder in (here, there))
    assert ours.pop("timing")["num_tokens"] == theirs.pop("timing")["num_tokens"]
    assert theirs == ours
