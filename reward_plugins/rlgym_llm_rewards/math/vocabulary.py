"""The closed vocabulary of the parser: what is no word here is no mathematics."""

from __future__ import annotations

__all__ = [
    "ACCENTS", "BIG", "BINOMIALS", "CALLABLE_LETTERS", "CONSTANTS", "CURRENCIES", "DEGREES",
    "FRACTIONS", "FUNCTIONS", "GREEK", "IGNORED", "MATRICES", "ORDINALS", "PAIRS", "PERCENT",
    "RELATIONS", "SETS", "SPACES", "TEXT_FONTS", "UNITS", "WORD_CONSTANTS",
]  # fmt: skip

FUNCTIONS = {
    name: name
    for name in """
    sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth
    exp log ln abs floor ceil max min gcd lcm sgn Re Im arg
    """.split()
} | {
    "lg": "lg", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arctg": "arctan",
    "tg": "tan", "ctg": "cot", "cosec": "csc", "sign": "sgn", "ceiling": "ceil",
    "gamma_function": "gamma", "sqrt": "sqrt", "cbrt": "cbrt", "binom": "binom",
    "binomial": "binom", "factorial": "factorial", "log2": "log2", "log10": "lg",
}  # fmt: skip
"""Functions by the names people give them."""

CONSTANTS = {
    r"\pi": "pi", r"\infty": "oo", r"\emptyset": "empty", r"\varnothing": "empty",
    r"\imath": "i", r"\ldots": "...", r"\dots": "...", r"\cdots": "...", r"\R": "reals",
}  # fmt: skip
WORD_CONSTANTS = {"pi": "pi", "infinity": "oo", "inf": "oo", "oo": "oo", "infty": "oo"}
SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}

GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "varepsilon",
        "zeta",
        "eta",
        "theta",
        "vartheta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "omicron",
        "rho",
        "varrho",
        "sigma",
        "varsigma",
        "tau",
        "upsilon",
        "phi",
        "varphi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
        "Upsilon",
        "Phi",
        "Psi",
        "Omega",
        "ell",
        "hbar",
    ]
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
"""Operators with limits. They are compared by form, never worked out."""

MATRICES = frozenset(
    ["pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix", "matrix", "smallmatrix", "array"]
)

TEXT_FONTS = frozenset(
    [
        "text",
        "textbf",
        "textit",
        "textrm",
        "textsf",
        "texttt",
        "textup",
        "textnormal",
        "mbox",
        "hbox",
        "emph",
        "mathrm",
        "mathsf",
        "mathtt",
        "operatorname",
    ]
)
"""Commands whose argument is words: units, "or", names."""

SPACES = frozenset(
    [r"\,", r"\;", r"\:", r"\!", r"\ ", "~", r"\quad", r"\qquad", "\\\n", r"\thinspace"]
)
IGNORED = frozenset(
    [
        r"\left",
        r"\right",
        r"\big",
        r"\Big",
        r"\bigg",
        r"\Bigg",
        r"\bigl",
        r"\bigr",
        r"\Bigl",
        r"\Bigr",
        r"\biggl",
        r"\biggr",
        r"\displaystyle",
        r"\textstyle",
        r"\scriptstyle",
        r"\limits",
        r"\nolimits",
        r"\middle",
        r"\mathstrut",
        r"\hfill",
        r"\noindent",
        r"\(",
        r"\)",
        r"\[",
        r"\]",
        r"\boldmath",
        r"\strut",
        r"$",
        r"\rm",
        r"\bf",
        r"\it",
        r"\boxed",
        r"\fbox",
        r"\underline",
        r"\mathbf",
        r"\mathit",
        r"\mathnormal",
        r"\boldsymbol",
        r"\bm",
        r"\pmb",
    ]
)

FRACTIONS = frozenset([r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"])
BINOMIALS = frozenset([r"\binom", r"\tbinom", r"\dbinom"])
ACCENTS = frozenset(
    [
        r"\overline",
        r"\vec",
        r"\hat",
        r"\bar",
        r"\tilde",
        r"\overrightarrow",
        r"\widehat",
        r"\dot",
        r"\angle",
        r"\triangle",
    ]
)
"""Marks that make another name of their argument."""

PAIRS = {
    r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil"), "|": ("|", "abs"),
    r"\lvert": (r"\rvert", "abs"), r"\|": (r"\|", "norm"), r"\lVert": (r"\rVert", "norm"),
}  # fmt: skip
"""Brackets that are functions: what closes them, and the function's name."""

PERCENT = frozenset(["%", r"\%", "percent", "pct", "percentage"])
DEGREES = frozenset([r"\circ", r"\degree", "degrees", "degree", "deg", "circ"])
ORDINALS = frozenset(["st", "nd", "rd", "th"])
CURRENCIES = {r"\$": "$", "€": "€", "£": "£", "¥": "¥", "₹": "₹", r"\pounds": "£", "¢": "cent"}
"""Signs of money that stand before the amount."""

CALLABLE_LETTERS = frozenset("fghFGH")
"""Letters that take an argument in brackets: f(x) is a value, while a(x) is a product."""

_UNIT_NAMES = """
m meter meters metre metres|cm centimeter centimeters centimetre centimetres
mm millimeter millimeters|km kilometer kilometers kilometre kilometres|in inch inches
ft foot feet|yd yard yards|mi mile miles|mph|kph kmh|g gram grams|kg kilogram kilograms kilos
mg milligram milligrams|lb lbs pound pounds|oz ounce ounces|ton tons tonne tonnes
s sec secs second seconds|min mins minute minutes|h hr hrs hour hours|day days|week weeks
month months|year years yr yrs|l L liter liters litre litres|ml mL milliliter milliliters
gal gallon gallons|qt quart quarts|cup cups|N newton newtons|J joule joules|W watt watts
V volt volts|A amp amps ampere amperes|Hz hertz|Pa pascal pascals|K kelvin|mol mole moles
$ dollar dollars usd USD bucks|cent cents ¢|€ euro euros EUR eur|£ GBP|¥ yen JPY|₹ rupee rupees
unit units|rad radian radians|am AM a.m.|pm PM p.m."""
UNITS = {
    name: names.split()[0]
    for names in _UNIT_NAMES.replace("\n", "|").split("|")
    for name in names.split()
}
"""Units by their canonical name."""
