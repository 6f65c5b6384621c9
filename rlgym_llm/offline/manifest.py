"""What makes a run the same run: its fingerprint, kept in the work folder and beside the output."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlgym_llm.differences import differences_text
from rlgym_llm.errors import UserError
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig, build_rewards
from rlgym_llm.specs import Kind
from rlgym_llm.types import SCHEMA_VERSION

__all__ = ["check_same", "fingerprint", "read_manifest", "write_manifest"]

_ANY = ("timeout_s", "memory_mb")
"""Settings that may change between a killed run and the one that goes on with it."""
_NAME = "manifest.json"


def fingerprint(
    settings: OfflineSettings, plugins: Plugins, config: RewardsConfig
) -> dict[str, Any]:
    """All that the output depends on, as JSON data, with the versions of the rewards."""
    asked = json.loads(settings.to_json())
    for name in _ANY:
        del asked[name]
    rewards = build_rewards(config, plugins)
    versions = {}
    for name, reward in rewards.items():
        spec = plugins.get(Kind.REWARD, str(config.components[name].reward))
        versions[name] = [spec.entry_point, plugins.owner(spec), reward.version]
        reward.close()
    return {
        **asked,
        "schema_version": SCHEMA_VERSION,
        "reward_versions": versions,
        "code": {path: _digest(path) for path in _code_files(settings, config)},
    }


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The fingerprint of the run whose work folder this is; None where there is none yet."""
    try:
        found = json.loads((folder / _NAME).read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{folder / _NAME} cannot be read ({error}): remove {folder}") from error
    return dict(found)


def write_manifest(folder: Path, mark: Mapping[str, Any]) -> None:
    """Makes the folder that of this run."""
    draft = folder / f"{_NAME}.tmp"
    draft.write_text(json.dumps(mark))
    draft.replace(folder / _NAME)


def check_same(mark: Mapping[str, Any], found: Mapping[str, Any], folder: Path) -> None:
    """Raises UserError, naming what differs, where the folder belongs to another run."""
    mark = json.loads(json.dumps(mark))
    # What differs in the rewards differs in their versions too.
    keys = [key for key in dict.fromkeys([*found, *mark]) if key != "reward_versions"]
    for key in (*keys, "reward_versions"):
        then, now = ({key: data[key]} if key in data else {} for data in (found, mark))
        if told := differences_text(then, now):
            raise UserError(
                f"{folder} holds a run that was stopped and had other {key} ({told}): give what it "
                "was given to go on with it, or --overwrite to drop it"
            )


def _code_files(settings: OfflineSettings, config: RewardsConfig) -> list[str]:
    """Plugin files, and files that options such as ``path: mine.py:score`` name."""
    named = list(settings.plugins)
    for component in config.components.values():
        named += [text.partition(":")[0] for text in _texts(component.options)]
    return sorted({path for path in named if path.endswith(".py") and Path(path).is_file()})


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return []


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
