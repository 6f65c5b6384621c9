"""What differs between two settings, in words."""

from rlgym_llm.differences import differences, differences_text


def test_only_what_differs_is_named():
    old = {"a": {"b": 1, "same": [1, {"x": 2}]}, "gone": None, "list": [{"w": 1.0}, 3]}
    new = {"a": {"b": 2, "same": [1, {"x": 2}]}, "list": [{"w": 0.5}, 3], "new": {}}
    assert differences(old, new) == [
        *("a.b: 1 -> 2", "gone: null -> absent", "list.0.w: 1.0 -> 0.5", "new: absent -> {}")
    ]
    assert differences(old, old) == []
    assert differences_text(old, old) == ""
    assert differences_text(old, new).endswith("list.0.w: 1.0 -> 0.5; and 1 more")


def test_values_are_cut_and_lists_of_other_lengths_are_values():
    assert differences({"text": "x" * 100}, {"text": "x" * 78}) == [
        f'text: "{"x" * 76}... -> "{"x" * 78}"'
    ]
    assert differences([1, 2], [1]) == [": [1, 2] -> [1]"]
