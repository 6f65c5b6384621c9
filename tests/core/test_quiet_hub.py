import logging

from rlgym_llm.quiet_hub import quiet_hub


def test_retries_are_silent_within_and_the_level_comes_back(caplog):
    hub, part = logging.getLogger("huggingface_hub"), logging.getLogger("huggingface_hub.utils")
    before = hub.level
    hub.setLevel(logging.INFO)
    try:
        with quiet_hub():
            part.warning("Retrying in 1s")
            part.error("gone")
        part.warning("heard again")
        assert hub.level == logging.INFO
    finally:
        hub.setLevel(before)
    assert [record.message for record in caplog.records] == ["gone", "heard again"]
