"""Which column means what, and what the rows of each layout become."""

import json
import pickle

import pytest

from rlgym_llm import (
    Completion,
    DataError,
    Message,
    Rollout,
    Task,
    Turn,
    UnknownNameError,
)
from rlgym_llm.layouts import layout as layout_module
from rlgym_llm.layouts.layout import FIELDS, Layout, recognise
from rlgym_llm.store import RolloutRecord, encode_record

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3?"}]
ASKED = (Message(role="system", content="Be brief."), Message(role="user", content="2+3?"))


def samples(row, number=1, **options):
    layout = recognise([row], **options)
    return layout, layout.to_samples(row, number)


class TestPlain:
    def test_our_own_columns(self):
        row = {"id": 1, "prompt": "2+3?", "completion": "5", "answer": "5"}
        layout, [sample] = samples(row)
        assert layout.name == "plain"
        assert (sample.id, sample.prompt, sample.completion, sample.answer) == (
            "1",
            "2+3?",
            "5",
            "5",
        )
        assert (sample.data_source, sample.group) == ("unknown", "2+3?")
        assert sample.columns is row

    @pytest.mark.parametrize("prompt", ["question", "problem", "input"])
    @pytest.mark.parametrize("completion", ["response", "output", "generation", "solution", "text"])
    @pytest.mark.parametrize("answer", ["gold", "ground_truth", "target", "label"])
    def test_the_usual_names(self, prompt, completion, answer):
        row = {prompt: "2+3?", completion: "It is 5", answer: 5}
        _, [sample] = samples(row, 7)
        assert (sample.prompt, sample.completion, sample.answer) == ("2+3?", "It is 5", "5")
        assert sample.id == "7"

    def test_worked_steps_are_the_answer_beside_a_response_alone(self):
        row = {"question": "q", "response": "r", "solution": "s"}
        assert recognise([row]).columns == {
            "prompt": "question",
            "completion": "response",
            "answer": "solution",
        }

    def test_worked_steps_of_problems_are_no_completions_unless_asked_for(self):
        row = {"problem": "q", "solution": "steps", "answer": "5"}
        assert recognise([row], needs=("prompt",)).completion is None
        assert recognise([row]).completion == "solution"

    def test_a_label_is_a_verdict_or_an_answer_by_its_kind(self):
        right = recognise([{"prompt": "q", "completion": "c", "label": True}])
        assert (right.label, right.answer) == ("label", None)
        gold = recognise([{"prompt": "q", "completion": "c", "label": "5"}])
        assert (gold.label, gold.answer) == (None, "label")

    def test_ids_groups_and_further_fields(self):
        row = {
            "uid": "a-3",
            "task_id": 12,
            "prompt": "q",
            "response": "c",
            "source": "gsm8k",
            "is_correct": False,
            "score": 1,
            "step": 40,
            "token_ids": [4, 5],
            "logprobs": [-0.5, -0.25],
        }
        _, [sample] = samples(row)
        assert (sample.id, sample.group, sample.data_source) == ("a-3", "12", "gsm8k")
        assert (sample.label, sample.reward, sample.step) == (False, 1.0, 40)
        assert (sample.token_ids, sample.logprobs) == ((4, 5), (-0.5, -0.25))

    @pytest.mark.parametrize(
        ("answer", "text"),
        [(3, "3"), (2.5, "2.5"), ("3", "3"), (None, None), (["π", 4], '["π", 4]'), (True, "true")],
    )
    def test_answers_are_text(self, answer, text):
        layout = recognise([{"prompt": "q", "completion": "c", "answer": "5"}])
        [sample] = layout.to_samples({"prompt": "q", "completion": "c", "answer": answer})
        assert sample.answer == text

    def test_messages_in_prompt_and_completion(self):
        row = {"prompt": CHAT, "completion": [{"role": "assistant", "content": "5"}], "answer": "5"}
        layout, [sample] = samples(row)
        assert layout.name == "plain"
        assert (sample.prompt, sample.completion) == (ASKED, "5")
        # Siblings share a group, others do not.
        other = {**row, "prompt": CHAT[1:]}
        assert layout.to_samples(row)[0].group == sample.group
        assert layout.to_samples(other)[0].group != sample.group

    def test_every_field_is_a_field_of_a_layout_and_has_usual_names(self):
        assert set(layout_module._SYNONYMS) == set(FIELDS) < set(Layout.__dataclass_fields__)

    def test_layouts_travel_to_workers(self):
        layout = recognise([{"prompt": "q", "completion": "c"}], needs=("completion", "prompt"))
        assert pickle.loads(pickle.dumps(layout)) == layout


class TestMapping:
    def test_it_beats_recognition(self):
        row = {"prompt": "q", "completion": "old", "response": "new", "gold": "1", "answer": "2"}
        layout, [sample] = samples(row, mapping={"completion": "response", "answer": "gold"})
        assert (sample.completion, sample.answer) == ("new", "1")
        assert layout.prompt == "prompt"

    def test_a_path_reaches_into_objects(self):
        row = {"prompt": "q", "out": {"text": "5", "meta": {"gold": 5}}}
        _, [sample] = samples(row, mapping={"completion": "out.text", "answer": "out.meta.gold"})
        assert (sample.completion, sample.answer) == ("5", "5")

    def test_a_column_with_a_dot_in_its_name_comes_first(self):
        row = {"prompt": "q", "out.text": "flat", "out": {"text": "deep"}}
        _, [sample] = samples(row, mapping={"completion": "out.text"})
        assert sample.completion == "flat"

    def test_it_turns_a_layout_of_objects_into_a_plain_one(self):
        row = {"question": "q", "ground_truth": "5", "m": {"solution": "s", "is_correct": True}}
        layout, [sample] = samples(row, mapping={"completion": "m.solution"})
        assert (layout.name, sample.completion) == ("plain", "s")

    def test_columns_and_fields_that_do_not_exist(self):
        row = {"prompt": "q", "response": "c", "label": "5"}
        with pytest.raises(
            DataError,
            match=r"f\.jsonl: no column 'respnse' for completion; did you mean 'response'\? "
            r"\(columns: prompt, response, label\)",
        ):
            recognise([row], {"completion": "respnse"}, path="f.jsonl")
        with pytest.raises(DataError, match="no field 'complection'; did you mean 'completion'"):
            recognise([row], {"complection": "response"})


class TestRefusals:
    def test_a_missing_column_names_what_is_there_and_the_nearest(self):
        with pytest.raises(DataError) as caught:
            recognise([{"question": "q", "complettion": "c"}], path="f.jsonl")
        message = str(caught.value)
        assert message.startswith("f.jsonl: no column holds the completion")
        assert "--map completion=complettion" in message
        assert "(columns: question, complettion)" in message

    def test_two_candidates_are_one_too_many(self):
        with pytest.raises(DataError, match="'response' and 'output' could both be the completion"):
            recognise([{"prompt": "q", "response": "a", "output": "b"}])

    def test_no_rows(self):
        with pytest.raises(DataError, match=r"f\.jsonl: there is no row"):
            recognise([], path="f.jsonl")

    def test_unknown_layout(self):
        with pytest.raises(UnknownNameError, match="unknown layout 'verll'; did you mean 'verl'"):
            recognise([{"prompt": "q"}], name="verll")

    @pytest.mark.parametrize("prompt", ["", " \n", [], [{"role": "user", "content": ""}]])
    def test_an_empty_prompt(self, prompt):
        layout = recognise([{"prompt": "q", "completion": "c"}])
        with pytest.raises(DataError, match="the prompt is empty"):
            layout.to_samples({"prompt": prompt, "completion": "c"})

    def test_a_needed_value_that_is_null(self):
        layout = recognise([{"prompt": "q", "completion": "c"}])
        with pytest.raises(DataError, match=r"no completion \(column 'completion'"):
            layout.to_samples({"prompt": "q", "completion": None})
        assert layout.to_samples({"prompt": "q", "completion": ""})[0].completion == ""

    @pytest.mark.parametrize("completion", [5, {"text": "5"}, ["5"]])
    def test_a_completion_that_is_no_text(self, completion):
        layout = recognise([{"prompt": "q", "completion": "c"}])
        with pytest.raises(DataError, match="a completion is text or a list of messages"):
            layout.to_samples({"prompt": "q", "completion": completion})


class TestKnownLayouts:
    def test_gsm8k_solutions_one_row_becomes_one_a_model(self, test_data):
        path = test_data / "data" / "gsm8k" / "example_model_solutions.jsonl"
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        layout = recognise(rows[:100])
        assert layout.name == "gsm8k_solutions"
        found = [sample for n, row in enumerate(rows, 1) for sample in layout.to_samples(row, n)]
        assert len(found) == 4 * 1319 == len({sample.id for sample in found})
        first = found[0]
        assert list(first.columns) == [
            *("question", "ground_truth", "id", "model", "completion", "is_correct")
        ]
        assert first.columns["model"] == "6b_finetuning"
        assert first.completion == rows[0]["6b_finetuning"]["solution"]
        assert first.label is rows[0]["6b_finetuning"]["is_correct"]
        assert (first.prompt, first.answer) == (rows[0]["question"], rows[0]["ground_truth"])
        assert first.id == first.columns["id"] == "1-6b_finetuning"

    def test_verl_dump(self):
        row = {"input": "2+3?", "output": "5", "gts": "5", "score": 1.0, "step": 3, "acc": True}
        layout, [sample] = samples(row)
        assert layout.name == "verl_dump"
        assert (sample.prompt, sample.completion, sample.answer) == ("2+3?", "5", "5")
        assert (sample.reward, sample.step) == (1.0, 3)

    def test_verl_parquet_with_and_without_responses(self):
        row = {
            "data_source": "openai/gsm8k",
            "prompt": CHAT[1:],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "5"},
            "extra_info": {"split": "train", "index": 7},
        }
        layout, [task] = samples(row, needs=("prompt",))
        assert layout.name == "verl"
        assert (task.id, task.completion, task.answer) == ("7", None, "5")
        assert task.data_source == "openai/gsm8k"
        _, [one] = samples({**row, "responses": ["5"]})
        assert (one.id, one.completion) == ("7", "5")
        _, both = samples({**row, "responses": ["5", "6"]})
        assert [(s.id, s.completion) for s in both] == [("7-0", "5"), ("7-1", "6")]
        assert both[0].group == both[1].group
        with pytest.raises(DataError, match="no column holds the completion"):
            recognise([row])

    def test_trl_completions(self):
        row = {"step": 5, "prompt": "q", "completion": "c", "accuracy": 1.0, "advantage": 0.5}
        layout, [sample] = samples(row)
        assert (layout.name, sample.completion, sample.step) == ("trl", "c", 5)

    def test_openai_messages(self):
        row = {"messages": [*CHAT, {"role": "assistant", "content": "5"}], "answer": "5"}
        layout, [sample] = samples(row)
        assert layout.name == "messages"
        assert (sample.prompt, sample.completion, sample.answer) == (ASKED, "5", "5")

    def test_openai_content_parts_roles_and_keys_that_templates_do_not_take(self):
        asked = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
        said = {"role": "assistant", "content": "5", "weight": 1, "refusal": None}
        _, [sample] = samples({"messages": [asked, CHAT[1], said]})
        assert (sample.prompt, sample.completion) == (ASKED, "5")

    def test_sharegpt(self):
        row = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
        _, [sample] = samples(row)
        assert sample.prompt == (Message(role="user", content="q"),)
        assert sample.completion == "a"

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            ({"from": "alien", "value": "x"}, "message 1 is by 'alien'"),
            ({"speaker": "human", "text": "x"}, "message 1 has neither 'role'"),
            ({"role": "user"}, "message 1 holds NoneType where text belongs"),
            ("x", "message 1 is a str"),
        ],
    )
    def test_unknown_chat_schemas_are_refused(self, message, reason):
        layout = Layout(name="messages", prompt="messages")
        with pytest.raises(DataError, match=reason):
            layout.to_samples({"messages": [message]})

    def test_a_chat_that_ends_with_the_user_has_no_completion(self):
        row = {"messages": CHAT}
        assert samples(row, needs=())[1][0].completion is None
        with pytest.raises(DataError, match="the row has no completion"):
            samples(row)

    def test_rollout_dumps_give_the_very_rollout(self):
        rollout = Rollout(
            id="r0",
            task=Task(prompt=ASKED, answer="5", data_source="toy"),
            group_id="g0",
            sample_index=0,
            seed=1,
            turns=(Turn(new_prompt_token_ids=(1,), completion=Completion(text="5")),),
        )
        row = json.loads(json.dumps(encode_record(RolloutRecord(rollout=rollout, step=2))))
        layout, [sample] = samples(row)
        assert layout.name == "rollouts"
        assert sample.rollout == rollout
        assert (sample.id, sample.group, sample.step) == ("r0", "g0", 2)
        with pytest.raises(DataError, match="layout rollouts: no 'schema_version'"):
            layout.to_samples({"rollout": {}})
