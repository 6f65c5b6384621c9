"""Where `rlgym rollout` writes: one JSONL file, what stands beside it, and parquet on request.

rollouts.jsonl          one rollout a line, group by group
rollouts.settings.json  what they were sampled under; more are added only under the same settings
rollouts.timings.jsonl  how long each group, or several that were complete at once, took
rollouts.summary.json   the figures, written at the end
rollouts.parquet        the same rollouts as parquet, once all are there
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rlgym_llm.errors import UserError
from rlgym_llm.layouts.convert import Conversion, Source, convert
from rlgym_llm.rows.beside import beside
from rlgym_llm.rows.file_format import read_rows
from rlgym_llm_trainers.commands.stored_files import RolloutFiles
from rlgym_llm_trainers.training.run_folder import choose_run_folder

__all__ = ["RolloutOutput", "choose_output"]

_OTHER_FILES = (".json", ".ndjson", ".csv", ".gz", ".zst", ".txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOutput:
    """The files, and the parquet file that they become, if any."""

    files: RolloutFiles
    parquet: Path | None

    def convert(self) -> Path:
        """The file that was asked for: parquet is written, as a stream, unless it is up to date."""
        source = self.files.rollouts
        if self.parquet is None:
            return source
        is_new = self.parquet.exists() and self.parquet.stat().st_mtime >= source.stat().st_mtime
        if not is_new:
            rows = Source(name=str(source), rows=partial(read_rows, source))
            convert(Conversion(sources=(rows,), out=self.parquet, overwrite=True), None)
        return self.parquet


def choose_output(output: str | None, *, name: str, is_scored: bool) -> RolloutOutput:
    """The files of ``--output``, not yet made: a ``.jsonl`` or ``.parquet`` file, or a folder.

    With no ``output`` they go to a new folder under ``runs/``. Raises UserError where a file is
    there that is none of this command's, or of another kind.
    """
    try:
        if output is None:
            path = choose_run_folder(None, name=f"rollout-{name}").path
        else:
            path = Path(output).expanduser()
        suffix = "" if path.is_dir() else path.suffix.lower()
    except (OSError, RuntimeError) as error:  # no such home, a name too long, no permission
        raise UserError(f"--output {output}: cannot be used: {error}") from error
    if suffix in _OTHER_FILES:
        raise UserError(f"--output {path}: name a .jsonl or .parquet file, or a folder")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError(f"--output {path}: needs pyarrow (pip install pyarrow); name a .jsonl file")
    rollouts = path / "rollouts.jsonl"
    if suffix in (".jsonl", ".parquet"):
        rollouts = path.with_suffix(".jsonl")
    elif path.exists() and not path.is_dir():
        raise UserError(f"--output {path}: is a file; name a folder, or a new .jsonl file")
    files = RolloutFiles(
        output=path,
        rollouts=rollouts,
        manifest=beside(rollouts, "settings.json"),
        timings=beside(rollouts, "timings.jsonl"),
        summary=beside(rollouts, "summary.json"),
        lock=rollouts.with_name(f".{rollouts.name}.lock"),
        command="rlgym rollout",
        holds="rollouts",
        is_scored=is_scored,
    )
    parquet = path if suffix == ".parquet" else None
    if not files.manifest.exists():
        for file in (rollouts, parquet):
            if file is not None and file.exists():
                raise UserError(
                    f"--output {file}: is there and nothing to go on with (no "
                    f"{files.manifest.name} beside it); name a new file"
                )
    return RolloutOutput(files=files, parquet=parquet)
