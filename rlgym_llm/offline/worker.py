"""The inner end of offline scoring: one chunk after another, in a process of its own."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.errors import DataError
from rlgym_llm.offline.card_json import card_json, splicer
from rlgym_llm.offline.chunks import Chunk
from rlgym_llm.offline.failing import Failures, OfflinePlugins, failing_composer
from rlgym_llm.offline.pace import Pace, Pulse
from rlgym_llm.offline.part import Part, Place
from rlgym_llm.offline.records import Records, hash64
from rlgym_llm.offline.samples import Item, Unit, chunk_items, chunk_units
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig, build_rewards
from rlgym_llm.scores import FAILED, ScoreCard
from rlgym_llm.types import Rollout
from rlgym_llm.votes import vote
from rlgym_llm.working_folder import inside

if TYPE_CHECKING:
    from rlgym_llm.offline.isolate import Mode

__all__ = ["ChunkScorer", "open_scorer"]

_FLUSH_S = 0.25
_CAREFUL_ROWS = 128


def open_scorer(settings_path: str, take: Callable[[], None]) -> ChunkScorer:
    """What a worker of the sandbox makes once: the composer, set up, and all around it."""
    path = Path(settings_path)
    while not path.exists():  # this worker was early; where the command ends, so does it
        time.sleep(0.005)
    return ChunkScorer(OfflineSettings.from_json(path.read_text()), take)


class ChunkScorer:
    """Scores chunks into parts; the state of one worker.

    Called with ``{chunk, mode, failures}``; answers ``{is_done}``. ``failures`` are those that the
    first row (or group) from where the part stands is known to end in.
    """

    def __init__(self, settings: OfflineSettings, take: Callable[[], None]) -> None:
        self._settings = settings
        self._plugins = OfflinePlugins(Plugins.discover(settings.plugins))
        self._config = RewardsConfig.model_validate(settings.rewards)
        self._composer = RewardComposer(self._config, self._plugins, evaluation=settings.evaluation)
        self._composer.setup()
        self._spliced = splicer(settings.score_column)
        self._records = Records(tuple(self._config.components))
        with inside(settings.folder or None):  # a reward may have gone elsewhere when it was set up
            self._pace = Pace(self._config, build_rewards(self._config, self._plugins).items())
        self._pulse = Pulse(take, settings.timeout_s)
        self._group, self._group_number = "", 0
        self._ended_groups: set[str] = set()

    def close(self) -> None:
        """Gives back what the rewards hold."""
        self._composer.close()

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Goes on with the chunk's part; whether that is whole now."""
        chunk = Chunk(**request["chunk"])
        mode: Mode = request["mode"]
        failures: Failures = request.get("failures") or {}
        gc.disable()  # a chunk is small, and its records hold no cycles
        try:
            with Part(self._settings.work, chunk.name) as part:
                is_done = self._score(part, chunk, mode, failures)
        finally:
            gc.enable()
        return {"is_done": is_done}

    def _score(self, part: Part, chunk: Chunk, mode: Mode, failures: Failures) -> bool:
        place = part.place
        if mode == "careful" and place.careful_to <= place.ordinal:
            careful_to = place.ordinal + _CAREFUL_ROWS
            place = Place(
                line=place.line, sample=place.sample, ordinal=place.ordinal, careful_to=careful_to
            )
        flushed = time.monotonic()
        self._ended_groups.clear()

        def size() -> int:
            return 1 if place.ordinal < place.careful_to else self._pace.num_rows

        entries = chunk_items(self._settings, chunk, (place.line, place.sample))
        # The place must have moved on before the next size is asked for.
        for unit in chunk_units(entries, lambda: size(), by_group=self._composer.needs_groups):
            self._plugins.is_quiet = mode == "probe"
            cards = self._cards(unit, failures, is_alone=size() == 1)
            if mode == "probe":
                return False
            failures = {}
            place = self._write(part, chunk, unit, cards, place)
            is_careful = mode == "careful" and place.ordinal >= place.careful_to
            now = time.monotonic()
            if mode != "fast" or now - flushed > _FLUSH_S or place.ordinal < place.careful_to:
                part.flush(place)
                flushed = now
            if is_careful:
                return False
        part.flush(place)
        part.finish(self._records.size)
        return True

    def _cards(self, unit: Unit, failures: Failures, *, is_alone: bool) -> list[ScoreCard]:
        rollouts = [item.rollout for item in unit.items]
        if not rollouts:
            return []
        if failures:
            with inside(self._settings.folder or None):
                composer = failing_composer(
                    self._config, self._plugins, failures, evaluation=self._settings.evaluation
                )
            with composer:
                self._pulse.start(self._pace.extra_s(len(rollouts)))
                return composer(rollouts, step=self._settings.step)
        if self._pace.needs_trial and not is_alone:
            self._plugins.is_quiet = True
            self._timed(self._composer, rollouts[:1])
            self._plugins.is_quiet = False
        return self._timed(self._composer, rollouts)

    def _timed(self, composer: RewardComposer, rollouts: list[Rollout]) -> list[ScoreCard]:
        start = time.perf_counter()
        self._pulse.start(self._pace.extra_s(len(rollouts)))
        cards = composer(rollouts, step=self._settings.step)
        self._pace.note(len(rollouts), time.perf_counter() - start)
        return cards

    def _write(
        self, part: Part, chunk: Chunk, unit: Unit, cards: list[ScoreCard], place: Place
    ) -> Place:
        for bad in unit.bad:
            if self._settings.on_bad_line == "error":
                raise DataError(bad.reason, path=bad.file, line=bad.line)
            part.reject(bad)
        spliced, write, record, file = self._spliced, part.write, self._record, chunk.file
        for item, card in zip(unit.items, cards, strict=True):
            line = spliced(item.row, card_json(card))
            write(line, record(item, card, len(line), file))
            for name, component in card.components.items():
                if component.error is not None and component.status in FAILED:
                    part.error(item.line, name, component.error)
        if not unit.items:
            return place
        last = unit.items[-1]
        return Place(
            line=last.line,
            sample=last.sample_index + 1,
            ordinal=place.ordinal + len(unit.items),
            careful_to=place.careful_to,
        )

    def _record(self, item: Item, card: ScoreCard, length: int, file: int) -> bytes:
        number, _, sample, _, _ = item
        group, text = sample.group, sample.completion or ""
        if group is not None and group != self._group:
            self._group, self._group_number = group, hash64(group)
        return self._records.pack(
            card,
            number,
            length,
            file,
            sample.label,
            0 if group is None else self._group_number,
            self._answer(card, text),
            len(text),
        )

    def _answer(self, card: ScoreCard, text: str) -> int:
        """What the vote of maj@k counts: the answer that the accuracy component found."""
        settings = self._settings
        part = card.components.get(settings.accuracy)  # type: ignore[arg-type]  # None is none
        if part is None:
            return 0
        is_right = part.raw is not None and part.raw >= settings.right_from
        answer = vote(part.info, text, is_right=is_right)
        if answer is None:
            return 0
        return 1 if answer is True else hash64(answer)
