"""The boundary around estimators and losses of plugins: what they raise and return has a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlgym_llm.errors import PluginError, RlgymError, describe
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Spec
from rlgym_llm_trainers.algorithms.metrics import Metric

__all__ = ["check_metrics", "load_function", "plugin_call"]


@contextmanager
def plugin_call(who: str) -> Iterator[None]:
    """Raises PluginError that names ``who`` for whatever is raised inside; ours keep their words.

    SystemExit too: it would end a run as if all were well.

    >>> with plugin_call("policy loss 'mine'"):
    ...     {}["x"]
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.PluginError: policy loss 'mine' failed: KeyError: 'x'
    """
    try:
        yield
    except RlgymError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{who} failed: {describe(error)}") from error


def load_function(plugins: Plugins, spec: Spec, who: str) -> Callable[..., Any]:
    """What the spec names. Raises PluginError where it does not load or cannot be called."""
    function: Callable[..., Any] = plugins.load(spec)
    if not callable(function):
        raise PluginError(f"{who} is a {type(function).__name__}, which cannot be called")
    return function


def check_metrics(metrics: object, who: str) -> None:
    """Raises PluginError unless it is a mapping of names to `Metric`.

    >>> check_metrics({"actor/mine": 0.5}, "policy loss 'mine'")
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.PluginError: policy loss 'mine' returned a float as the metric 'actor/mine'; \
take Metric.mean(total, count), sum, max or min
    """
    if not isinstance(metrics, Mapping):
        raise PluginError(f"{who} returned a {type(metrics).__name__} as metrics, not a mapping")
    for name, metric in metrics.items():
        if not isinstance(name, str):
            raise PluginError(f"{who} returned a metric under {name!r}, which is no name")
        if not isinstance(metric, Metric):
            raise PluginError(
                f"{who} returned a {type(metric).__name__} as the metric {name!r}; take "
                "Metric.mean(total, count), sum, max or min"
            )
