"""No text is ever run, nothing heavy starts unasked, and no answer is too large to judge."""

import ast
import builtins
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import rlgym_llm_rewards.math as package
from rlgym_llm_rewards.math import Policy, verify

FOLDER = Path(package.__file__).parent
VERIFY = importlib.import_module("rlgym_llm_rewards.math.verify")  # the module, not the function

# -- no text is run ------------------------------------------------------------------------------

EVALUATORS = """sympify parse_expr eval_expr stringify_expr parse_latex parse_mathematica
parse_maxima parse_autolev N nsimplify lambdify auto_symbol""".split()

PAYLOADS = [
    "__import__('os').system('touch marker')",
    "open('marker','w').write('x')",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    'exec(\'open("marker","w")\')',
    "Matrix([[open('marker','w').write('x')]])",
    r"\text{__import__('os')}",
    r"\operatorname{eval}(open('marker','w'))",
    r"\input{|touch marker}",
    r"\write18{touch marker}",
    "lambda: open('marker','w')",
    "x + open('marker','w').write('x')",
    "2**(open('marker','w').write('x'))",
    'f\'{open("marker","w")}\'',
    "Symbol('x').__class__",
    "S(1)/2",
    r"\sqrt{__import__('os').system('touch marker')}",
]


def forget():
    """Golds and verdicts that are remembered are not judged anew."""
    for name, module in list(sys.modules.items()):
        if name.startswith(package.__name__) and hasattr(module, "_remembered"):
            module._remembered.cache_clear()


@pytest.fixture
def trapped(monkeypatch):
    """Every way by which Python or sympy runs a text, replaced by one that takes note of it.

    Proofs run in this process, and everything that can be is handed on to them.
    """
    for name in ("sympy", "sympy.parsing.sympy_parser", "sympy.parsing.latex", "mpmath"):
        importlib.import_module(name)
    symbolic = importlib.import_module("rlgym_llm_rewards.math.symbolic")
    nodes = importlib.import_module("rlgym_llm_rewards.math.parsing.nodes")
    values = importlib.import_module("rlgym_llm_rewards.math.values")
    caught: list[str] = []
    proofs: list[bool | None] = []

    def prove(left, right):
        pair = json.loads(json.dumps([nodes.to_json(left), nodes.to_json(right)]))
        try:
            proofs.append(symbolic.prove(pair))
        except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
            proofs.append(None)
        return proofs[-1]

    monkeypatch.setattr(symbolic, "PATIENCE_S", 60.0)  # its interrupt is for a worker of its own
    monkeypatch.setattr(VERIFY, "prover", lambda: prove)
    monkeypatch.setattr(values, "form_of", lambda node: None)
    symbolic.prove([["num", "1"], ["call", "sin", ["sym", "x"]]])  # sympy's own late imports

    def trap(name, original):
        def work(*args, **options):
            if any(isinstance(arg, str | bytes) for arg in args):
                caught.append(f"{name}: {args!r:.200}")
            return original(*args, **options)

        return work

    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, trap(name, getattr(builtins, name)))
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "sympy":
            for name in EVALUATORS:
                if callable(original := vars(module).get(name)):
                    monkeypatch.setattr(module, name, trap(name, original))
    registry = type(importlib.import_module("sympy").S)
    monkeypatch.setattr(registry, "__call__", staticmethod(trap("S()", registry.__call__)))
    forget()
    yield caught, proofs
    forget()


BY_TREES = Policy(units="match")
"""Leaves out the shortcut for plain numbers."""


def test_the_traps_catch(trapped):
    import sympy

    caught, proofs = trapped
    eval("1 + 1")
    sympy.sympify("1 + 1")
    sympy.simplify("x + x")
    sympy.S("2")
    names = {line.partition(":")[0] for line in caught}
    assert names >= {"eval", "sympify", "parse_expr", "S()"}
    assert any("x + x" in line for line in caught)
    assert verify(r"\boxed{2x+2}", "2(x+1)", policy=BY_TREES).rule == "symbolic"
    assert proofs == [True]


def texts_run(caught):
    """What was run, but for the source that sympy writes itself for its polynomials."""
    return [line for line in caught if not line.startswith("exec: ('def monomial_")]


def test_no_payload_is_run(trapped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    caught, _ = trapped
    for payload in PAYLOADS:
        for completion, gold in (
            (rf"\boxed{{{payload}}}", "42"),
            (payload, "x+1"),
            (f"#### {payload}", payload + " "),
            ("42", payload),
            (rf"\boxed{{x+{payload}}}", rf"{payload}+x"),
        ):
            for policy in ("standard", "lenient", BY_TREES):
                verdict = verify(completion, gold, policy=policy)
                assert not verdict.is_correct or payload in gold
    assert not texts_run(caught)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.data
def test_no_text_of_the_cases_is_run(trapped, test_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    caught, proofs = trapped
    for case in map(json.loads, (test_data / "cases/verifier.jsonl").read_text().splitlines()):
        for policy in ("standard", BY_TREES):
            verify(case["completion"], case["gold"], policy=policy)
    assert not texts_run(caught)
    assert len(proofs) > 100
    assert proofs.count(True) > 80
    assert list(tmp_path.iterdir()) == []


FORBIDDEN = {
    "eval", "exec", "compile", "sympify", "parse_expr", "S", "N", "nsimplify", "lambdify",
    "parse_latex", "__import__", "import_module", "system", "popen", "literal_eval", "loads",
}  # fmt: skip


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_no_module_calls_what_runs_a_text(path):
    is_symbolic = path.stem == "symbolic"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            is_regex = name == "compile" and ast.unparse(node.func) == "re.compile"
            assert name not in FORBIDDEN or is_regex, f"{path.name}:{node.lineno}: {name}"
        imported = (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )  # fmt: skip
        heavy = {name.partition(".")[0] for name in imported} & {"sympy", "subprocess", "pickle"}
        assert not heavy or (is_symbolic and heavy == {"sympy"})


# -- nothing starts unasked ----------------------------------------------------------------------


def run(program):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


NUMBERS = """
for completion, gold in (("#### 72", "72"), ("so it is 1,234.", "1234"), (r"\\boxed{3/4}", "0.75"),
                         ("72", "73"), ("I do not know", "5"), (r"\\boxed{C}", "C")):
    verify(completion, gold)
"""


def test_importing_loads_nothing_heavy():
    heavy = "{'sympy', 'mpmath', 'torch', 'ray', 'numpy.random'} & set(sys.modules)"
    program = f"import sys, rlgym_llm_rewards.math\nassert not {heavy}, {heavy}"
    assert run(program) == ""


def test_plain_numbers_need_no_sympy_and_no_process():
    program = f"""
import subprocess, sys, threading
from rlgym_llm_rewards.math import verify
def refuse(*args, **options): raise SystemExit("a process")
subprocess.Popen.__init__ = refuse
{NUMBERS}
assert verify(r"\\boxed{{2x+2}}", "2(x+1)").is_correct and verify("(1,2)", "(1, 2)").is_correct
assert "sympy" not in sys.modules and threading.active_count() == 1
"""
    assert run(program) == ""


def test_sympy_stays_out_of_this_process_even_for_proofs():
    program = r"""
import sys
from rlgym_llm_rewards.math import verify
verdict = verify(r"\boxed{\log_4(x^2+1)}", r"\frac{1}{2}\log_2(x^2+1)")
assert verdict.is_correct, verdict
assert "sympy" not in sys.modules
"""
    assert run(program) == ""


def test_all_is_what_is_public():
    public = {
        name
        for name, value in vars(package).items()
        if name[0] != "_" and name != "annotations" and not isinstance(value, type(package))
    }
    assert public == set(package.__all__)
    assert list(package.__all__) == sorted(package.__all__, key=lambda n: (not n.isupper(), n))
