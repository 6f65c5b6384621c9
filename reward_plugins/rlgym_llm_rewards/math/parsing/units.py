"""Units, nouns that count things, and the words that make a number larger."""

from __future__ import annotations

__all__ = ["CURRENCIES", "PREFIXED", "SCALES", "UNITS", "is_known_unit", "unit_name"]

_NAMES = """
m meter meters metre metres|cm centimeter centimeters centimetre centimetres
mm millimeter millimeters|km kilometer kilometers kilometre kilometres|in inch inches
ft foot feet|yd yard yards|mi mile miles|g gram grams|kg kilogram kilograms kilos
mg milligram milligrams|lb lbs pound pounds|oz ounce ounces|ton tons tonne tonnes
s sec secs second seconds|min mins minute minutes|h hr hrs hour hours|day days|week weeks
month months|year years yr yrs|l L liter liters litre litres|ml mL milliliter milliliters
gal gallon gallons|qt quart quarts|cup cups|N newton newtons|J joule joules|W watt watts
V volt volts|A amp amps ampere amperes|Hz hertz|Pa pascal pascals|K kelvin|mol mole moles
$ dollar dollars usd USD bucks|cent cents ¢|€ euro euros EUR eur|£ GBP|¥ yen JPY|₹ rupee rupees
°C celsius Celsius|°F fahrenheit Fahrenheit
unit units|rad radian radians|am AM|pm PM|mi/h mph|km/h kph kmh
"""
UNITS = {
    name: names.split()[0]
    for names in _NAMES.strip().replace("\n", "|").split("|")
    for name in names.split()
}
"""Units by their canonical name."""

CURRENCIES = {r"\$": "$", "€": "€", "£": "£", "¥": "¥", "₹": "₹", r"\pounds": "£", "¢": "cent"}
"""Signs of money, before the amount or behind it."""
PREFIXED = frozenset(["USD", "EUR", "GBP", "JPY", "US"])
"""Words of money that stand before the amount."""

SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12,
}  # fmt: skip
"""Words that multiply the number before them."""

_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
# Words after which a number is no longer that number.
_CHANGING = frozenset(
    """plus minus times squared cubed or and more less fewer than else not wrong incorrect false
    over divided percent to""".split()
)
_CANONICAL = frozenset(UNITS.values())


def is_known_unit(name: str | None) -> bool:
    """Whether it is a unit by its canonical name, or a modulus, rather than a noun."""
    if name is not None and name.startswith("mod "):
        return True
    return name is not None and all(
        part.split("^")[0] in _CANONICAL for part in name.replace("*", "/").split("/")
    )


def unit_name(words: list[str]) -> str | None:
    """The canonical name of a unit, or the noun in lower case; None for words that count nothing.

    >>> unit_name(["square", "feet"]), unit_name(["ft^2"]), unit_name(["apples", "left"])
    ('ft^2', 'ft^2', 'apples left')
    >>> unit_name(["miles", "per", "hour"]), unit_name(["plus", "one"])
    ('mi/h', None)
    """
    words = [word.strip(".,!()") for word in words]
    if not _CHANGING.isdisjoint(word.lower() for word in words):
        return None
    power = _POWERS.get(words[0].lower(), "")
    if power and len(words) > 1:
        words = words[1:]
    if len(words) == 3 and words[1] == "per":
        words = [f"{words[0]}/{words[2]}"]
    parts = [_one(part) for part in words[0].split("/")]
    if len(words) > 1 or None in parts:
        return " ".join(words).lower() if parts[0] is None else parts[0] + power
    return "/".join(part for part in parts if part) + power


def _one(word: str) -> str | None:
    head, mark, exponent = word.partition("^")
    name = UNITS.get(head, UNITS.get(head.lower()))
    return None if name is None else name + mark + exponent
