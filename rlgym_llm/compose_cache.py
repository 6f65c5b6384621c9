"""One composer for all environments of a process that score alike."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.errors import UserError
from rlgym_llm.reward_config import Composition, RewardsConfig, read_rewards
from rlgym_llm.rewards import RewardPlugins

__all__ = ["give_back", "lend", "parsed", "parsed_defaults"]

_MOST = 32
"""So many parsed sections, and composers that nobody uses, are kept."""


class _Lent:
    """A composer, and how many environments score with it."""

    def __init__(self, rewards: RewardsConfig, plugins: RewardPlugins) -> None:
        self.rewards = rewards  # kept alive, since the table goes by identity
        self.plugins = plugins
        self.num_users = 0
        self.lock = threading.Lock()
        self.composer: RewardComposer | None = None

    def ready(self) -> RewardComposer:
        """The composer, built and set up."""
        with self.lock:
            if self.composer is None:
                self.composer = _alone(RewardComposer(self.rewards, self.plugins))
            self.composer.setup()
            return self.composer


_lent: OrderedDict[tuple[int, int, int], _Lent] = OrderedDict()
_parsed: OrderedDict[str, RewardsConfig] = OrderedDict()
_defaults: OrderedDict[int, tuple[object, RewardsConfig]] = OrderedDict()
_lock = threading.Lock()


def parsed(rewards: RewardsConfig | Composition | Mapping[str, Any]) -> RewardsConfig:
    """The checked rewards, as `read_rewards` gives them; plain data is read once by its content.

    >>> parsed({"math": 1.0}) is parsed({"math": 1.0})
    True
    """
    try:
        json.dumps(rewards)
    except (TypeError, ValueError):
        return read_rewards(rewards)
    key = repr(rewards)  # of plain data it tells 1 from "1" and True, as JSON does not for keys
    with _lock:
        if key in _parsed:
            _parsed.move_to_end(key)
            return _parsed[key]
    config = read_rewards(rewards)
    with _lock:
        config = _parsed.setdefault(key, config)
        _forget_over(_parsed)
    return config


def parsed_defaults(rewards: RewardsConfig | Mapping[str, Any]) -> RewardsConfig:
    """As `parsed`, of a class's constant: it is known by its identity, so its content is not read.

    >>> class_constant = {"math": 1.0}
    >>> parsed_defaults(class_constant) is parsed_defaults(class_constant)
    True
    """
    with _lock:
        known = _defaults.get(id(rewards))
        if known is not None and known[0] is rewards:
            return known[1]
    config = parsed(rewards)
    with _lock:
        _defaults[id(rewards)] = (rewards, config)  # kept alive, so that its id stays its own
        _forget_over(_defaults)
    return config


def lend(rewards: RewardsConfig, plugins: RewardPlugins | None) -> RewardComposer:
    """A composer that is set up, shared by all who ask for the same rewards and plugins.

    ``plugins`` None is whatever is installed. Each call asks for one `give_back`. Raises as
    `RewardComposer` does, and UserError for a reward that compares siblings.
    """
    if plugins is None:
        from rlgym_llm.plugins import Plugins

        plugins = Plugins.installed()
    key = (os.getpid(), id(rewards), id(plugins))  # a fork has none of the parent's threads
    with _lock:
        lent = _lent.get(key)
        if lent is None:
            lent = _lent[key] = _Lent(rewards, plugins)
        lent.num_users += 1
        _lent.move_to_end(key)
    try:
        return lent.ready()
    except BaseException:
        with _lock:
            lent.num_users -= 1
            if not lent.num_users:
                _lent.pop(key, None)
        raise


def give_back(composer: RewardComposer) -> None:
    """Takes a composer back; the last one who gives it back closes it.

    It is kept, closed, for the next who asks. A composer from elsewhere is closed.
    """
    with _lock:
        lent = next((lent for lent in _lent.values() if lent.composer is composer), None)
        if lent is not None:
            lent.num_users -= 1
            _forget_the_oldest()
    if lent is None:
        composer.close()
        return
    with lent.lock:
        if not lent.num_users:  # nobody asked in the meantime
            composer.close()


def _forget_over(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > _MOST:
        kept.popitem(last=False)


def _forget_the_oldest() -> None:
    if len(_lent) <= _MOST:
        return
    unused = [key for key, lent in _lent.items() if not lent.num_users]
    for key in unused[: max(0, len(unused) - _MOST)]:
        del _lent[key]


def _alone(composer: RewardComposer) -> RewardComposer:
    if composer.needs_groups:
        raise UserError(
            "a reward of scope group compares siblings, and an environment by itself plays one "
            "episode; take defer_scoring=True and score whole groups with RewardComposer"
        )
    return composer
