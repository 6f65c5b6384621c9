"""The closed vocabulary of the parser: what is no word here is no mathematics."""

from __future__ import annotations

__all__ = [
    "ACCENTS", "BIG", "BINOMIALS", "CALLABLE_LETTERS", "CONSTANTS", "DEGREES", "FRACTIONS",
    "FUNCTIONS", "GREEK", "IGNORED", "MATRICES", "ORDINALS", "PAIRS", "PERCENT", "RELATIONS",
    "SETS", "SPACES", "TEXT_FONTS", "TRIGONOMETRIC", "WORD_CONSTANTS",
]  # fmt: skip

FUNCTIONS = {
    name: name
    for name in """
    sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth
    arcsinh arccosh arctanh     exp log ln abs floor ceil max min gcd lcm sgn Re Im arg cis
    """.split()
} | {
    "lg": "lg", "arsinh": "arcsinh", "arcosh": "arccosh", "artanh": "arctanh", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arctg": "arctan",
    "tg": "tan", "ctg": "cot", "cosec": "csc", "sign": "sgn", "ceiling": "ceil",
    "sqrt": "sqrt", "cbrt": "cbrt", "binom": "binom",
    "binomial": "binom", "factorial": "factorial", "det": "det", "log2": "log2", "log10": "lg",
}  # fmt: skip
"""Functions by the names people give them."""
TRIGONOMETRIC = frozenset("sin cos tan cot sec csc".split())
"""Functions of an angle: within them a degree is pi/180."""

CONSTANTS = {
    r"\pi": "pi", r"\infty": "oo", r"\emptyset": "empty", r"\varnothing": "empty",
    r"\imath": "i", r"\ldots": "...", r"\dots": "...", r"\cdots": "...", r"\R": "reals",
}  # fmt: skip
WORD_CONSTANTS = {"pi": "pi", "infinity": "oo", "inf": "oo", "oo": "oo", "infty": "oo"}
SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}

GREEK = frozenset(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi
    omicron rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda
    Xi Pi Sigma Upsilon Phi Psi Omega ell hbar""".split()
)

RELATIONS = {
    "=": "=", "==": "=", r"\equiv": "equiv", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "=<": "<=",
    r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=", r"\leqq": "<=",
    r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\geqq": ">=", "!=": "!=", r"\ne": "!=",
    r"\neq": "!=", r"\approx": "~", r"\simeq": "~", r"\doteq": "~", "~=": "~", r"\in": "in",
    r"\notin": "notin", r"\subset": "subset", r"\subseteq": "subseteq", r"\to": "to",
    r"\rightarrow": "to", r"\propto": "propto", r"\mid": "|",
}  # fmt: skip
"""Relations by their normal name; ``~`` is approximately."""

BIG = {
    r"\sum": "sum", r"\prod": "prod", r"\int": "int", r"\lim": "lim", r"\iint": "iint",
    r"\oint": "oint", r"\bigcup": "bigcup", r"\bigcap": "bigcap",
}  # fmt: skip
"""Operators with limits. Short sums and products are worked out, the rest compared by form."""

MATRICES = frozenset("pmatrix bmatrix Bmatrix vmatrix Vmatrix matrix smallmatrix array".split())

TEXT_FONTS = frozenset(
    """text textbf textit textrm textsf texttt textup textnormal mbox hbox emph mathrm mathsf mathtt
    operatorname""".split()
)
"""Commands whose argument is words: units, "or", names."""

SPACES = frozenset(
    [r"\,", r"\;", r"\:", r"\!", r"\ ", "~", r"\quad", r"\qquad", "\\\n", r"\thinspace"]
)
IGNORED = frozenset(
    r"""$ \( \) \[ \] \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr \biggl \biggr \displaystyle
    \textstyle \scriptstyle \limits \nolimits \middle \mathstrut \hfill \noindent \boldmath \strut
    \rm \bf \it \boxed \fbox \underline \mathbf \mathit \mathnormal \boldsymbol \bm \pmb \large
    \Large \LARGE \huge \Huge \small \normalsize \tiny \therefore \because \implies
    \ensuremath \num""".split()
)
"""Commands that change how things look, or that lead to them."""

FRACTIONS = frozenset(r"\frac \dfrac \tfrac \cfrac \nicefrac \sfrac".split())
BINOMIALS = frozenset(r"\binom \tbinom \dbinom".split())
ACCENTS = {
    "\\" + name: name
    for name in "overline vec hat tilde widehat dot ddot angle triangle overrightarrow".split()
} | {r"\bar": "overline", r"\overrightarrow": "vec"}
"""Marks that make another name of their argument."""

PAIRS = {
    r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil"), "|": ("|", "abs"),
    r"\lvert": (r"\rvert", "abs"), r"\|": (r"\|", "norm"), r"\lVert": (r"\rVert", "norm"),
}  # fmt: skip
"""Brackets that are functions: what closes them, and the function's name."""

PERCENT = frozenset(["%", r"\%", "percent", "pct", "percentage"])
DEGREES = frozenset([r"\circ", r"\degree", "degrees", "degree", "deg", "circ"])
ORDINALS = frozenset(["st", "nd", "rd", "th"])

CALLABLE_LETTERS = frozenset("fghFGH")
"""Letters that take an argument in brackets: f(x) is a value, while a(x) is a product."""
