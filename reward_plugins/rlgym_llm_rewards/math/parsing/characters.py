"""Unicode mathematics as LaTeX: digits of every script, superscripts, fractions, operators."""

from __future__ import annotations

import re
import unicodedata

from rlgym_llm.lazy_pattern import lazy_pattern

__all__ = ["to_ascii"]

_OPERATORS = {
    "−": "-", "–": "-", "﹣": "-", "×": r"\times ", "✕": r"\times ", "·": r"\cdot ",
    "⋅": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ", "÷": r"\div ", "∕": "/", "⁄": "/",
    "√": r"\sqrt ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]", "±": r"\pm ", "∓": r"\mp ",
    "≤": r"\le ", "⩽": r"\le ", "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ",
    "≠": r"\ne ", "≈": r"\approx ", "≡": r"\equiv ", "∈": r"\in ", "∉": r"\notin ",
    "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "∅": r"\emptyset ", "∞": r"\infty ",
    "π": r"\pi ", "°": r"^{\circ}", "′": "'", "“": '"', "”": '"', "‘": "'", "’": "'",
    "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "…": r"\ldots ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "，": ", ", "、": ", ", "；": "; ",
    "：": ":", "（": "(", "）": ")", "［": "[", "］": "]", "｛": "{", "｝": "}", "＝": "=",
    "＋": "+", "％": r"\%", "٪": r"\%", "٫": ".", "٬": ",", "。": ".", "∣": "|", "∧": r"\land ",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2003": " ", "\u3000": " ",
    "\u200b": "", "\ufeff": "", "\u2060": "", "\u00ad": "", "\u2066": "", "\u2067": "",
    "\u2068": "", "\u2069": "", "∴": "",
}  # fmt: skip
_GREEK = {
    chr(code): "\\" + name + " "
    for start, names in (
        (0x3B1, "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron"),
        (0x3C1, "rho varsigma sigma tau upsilon phi chi psi omega"),
        (0x3A6, "Phi Chi Psi Omega"),
        (0x391, "Alpha Beta Gamma Delta"),
    )
    for code, name in enumerate(names.split(), start)
} | {"Θ": r"\Theta ", "Λ": r"\Lambda ", "Σ": r"\Sigma ", "Π": r"\Pi ", "ϕ": r"\phi "}
_TABLE = str.maketrans(_OPERATORS | _GREEK)

_SCRIPTS = lazy_pattern("[⁰¹²³⁴-⁹⁺⁻ⁿⁱ]+|[₀-₉]+")
_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni", strict=True))


def to_ascii(text: str) -> str:
    r"""The text with mathematical Unicode written as LaTeX; other letters stay.

    >>> to_ascii("2√3 ≤ x²"), to_ascii("٤٢"), to_ascii("1½")
    ('2\\sqrt 3 \\le  x^{2}', '42', '1\\frac{1}{2}')
    """
    if text.isascii():
        return text
    # Bidirectional controls change what is seen against what is there: they make it unreadable.
    text = _SCRIPTS.sub(_script, text).translate(_TABLE)
    return text if text.isascii() else "".join(map(_plain, text))


def _script(match: re.Match[str]) -> str:
    run = match[0]
    if run[0] in _SUPER:
        return "^{" + "".join(_SUPER[char] for char in run) + "}"
    return "_{" + "".join(str(unicodedata.digit(char)) for char in run) + "}"


def _plain(char: str) -> str:
    if char.isascii():
        return char
    value = unicodedata.decimal(char, None)
    if value is not None:
        return str(value)
    if "FRACTION" in unicodedata.name(char, "") and (parts := unicodedata.normalize("NFKC", char)):
        top, _, bottom = parts.partition("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}" if top and bottom else char
    if "\uff01" <= char <= "\uff5e":  # fullwidth forms of ASCII
        return chr(ord(char) - 0xFEE0)
    return char
