import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_help_loads_nothing_heavy(command):
    script = (
        "import sys\n"
        "from rlgym_llm.cli import main\n"
        "try:\n"
        f"    main(['{command}', '--help'])\n"
        "except SystemExit as left:\n"
        "    assert left.code == 0\n"
        "heavy = {'torch', 'transformers', 'gymnasium', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--retry-errors" in done.stdout
