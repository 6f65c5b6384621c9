"""What is said against an answer: it is negated, doubted, taken back, or but a bound."""

from __future__ import annotations

import re

from rlgym_llm.lazy_pattern import lazy_pattern

__all__ = [
    "bounds_another",
    "is_bound",
    "is_denied",
    "is_disowned",
    "is_operand",
    "is_rejected",
    "rejects_itself",
    "without_negation",
]

_WINDOW = 120
"""Characters before an answer in which what denies it stands."""

# Literal beginnings that are searched for at C speed: without any, nothing is denied.
_HINT = lazy_pattern(
    "n(?:ot|ever|either|or|['’]t|icht|owhere|o es|o son|on è|ão|iet|ie jest)"
    "|N(?:ot|OT|ever|either|'T)"
    "|but|than|from|close|longer|likely|hardly|doubt|deny|refuse|reject|disagree|false|False|untrue"
    "|wrong|Wrong|WRONG|incorrect|Incorrect|impossible|mistaken|pas|不是|не[ \u00a0]|ではない"
)
_NOT = r"""(?:\b(?:not|never|neither|nor|cannot|nicht|pas|niet|no\s(?:es|son)|non\sè|não(?:\sé)?
    |nie\sjest|не)\b|n['’]t\b|不是)"""
_ALL_BUT = r"""\b(?: (?:anything|everything|all) \s+ but | (?:other|rather) \s+ than
    | different \s+ from | far \s+ from | nowhere \s+ near | (?:very\s+)? close \s+ to
    | no \s+ longer | unlikely | hardly )"""
_NEGATION = lazy_pattern(rf"{_NOT}|{_ALL_BUT}\b", re.VERBOSE | re.IGNORECASE)
# Right before the answer: "is not $42$", "is anything but 42".
_NEGATED = lazy_pattern(
    rf"(?:{_NOT}|{_ALL_BUT})(?:\s+(?:to\s+)?(?:be|equal(?:\s+to)?|exactly))?[ $\\(:*]*\Z",
    re.VERBOSE | re.IGNORECASE,
)
# Further away, in what is said of the statement: "I doubt that it is 42", "it is not true that
# n = 42", "the wrong answer is 42". People who doubt or refuse things may be counted.
_DENIED = lazy_pattern(
    rf"""(?: \b(?:I|we)\b [^.,;:!?\n]{{0,20}}? (?: \b(?:doubt|deny|refuse|reject|disagree)\b
        | {_NOT} (?!\s+(?:forget|only|just|hard|difficult)) (?:\s+\w+){{0,2}}? \s+
          (?: sure | certain | convinced | confident | think | believe | say | claim | agree
            | accept | know | conclude ) )
      | {_NOT} (?:\s+\w+)? \s+ (?: true | right | correct | clear | likely | possible | certain
          | the\s+case ) \s+ (?: that | to\s+(?:say|claim|think|assume) )
      | \b(?: false | untrue | wrong | incorrect | impossible | unlikely | mistaken | doubtful )
        \s+ that
      | (?<!for\ )(?<!of\ ) \b(?:the|an?) \s+ (?:common\s+)? (?: wrong | incorrect | false ) \s+
        (?:final\s+)? (?: answer | value | result | solution | option | choice | guess ) ) \b
    (?: (?!\b(?:so|but|hence|thus|therefore|and|then|because|since)\b) [^.,;:!?\n] )*+
    [ $\\(:*]*+ \Z""",
    re.VERBOSE | re.IGNORECASE,
)
# Right before "answer": whose it is, or under what condition.
_DISOWNED = lazy_pattern(
    r"""(?: \b(?:wrong|incorrect|false|previous|user['’]?s) (?:\s+final)?
    | \b(?:if|whether|suppose|supposing|assume|assuming|unless) (?:\s+that)?
      (?:\s+(?:the|my|our|an?))? (?:\s+(?:final|correct|right))? ) \s+ \Z""",
    re.VERBOSE | re.IGNORECASE,
)
_DISOWNS = lazy_pattern("wrong|Wrong|ncorrect|alse|revious|ser|if|If|hether|uppos|ssum|nless")
_WRONG = r"""(?: wrong | incorrect | false | mistaken
    | not \s+ (?: correct | right | true | the \s+ (?:\w+\s+)? (?:answer|solution|result|value) )
    ) \b (?!\s+to\b)"""
_ADVERB = r"(?:(?:an?|also|clearly|certainly|definitely|obviously)\s+)?"
_IS = r"(?:is|was|would\s+be)"
_SECOND_THOUGHT = r"(?:(?:no|wait|hmm+|oh|oops|sorry|actually)\b[\s,.!…—–-]+)"
# It as the answer, not what else it may be: "is impossible to beat", "does not work for n = 2".
_FAILS = r"""(?: (?:is|was|seems) \s+ (?:impossible|not\s+(?:possible|valid|it)) | fails
    | (?:does|did|will|can)(?:\s?not|n['’]t) \s+ (?:work|be\s+(?:it|right|correct|true)) )
    \b (?!\s+(?:to|for|that|if|when|with|in)\b)"""
# Right behind the answer: "is wrong", ". That is incorrect", "(wrong)", "? No".
_REJECTED = lazy_pattern(
    rf"""[\s$\\)}}\]*.,;:]{{0,8}} (?:
      {_SECOND_THOUGHT}{{0,2}} (?:(?:but|and|which|that|this|it)(?:\s+|(?=['’]s\b))){{0,2}}
        (?: (?:{_IS}|['’]s)\s+{_ADVERB}{_WRONG} | {_IS}n['’]t\s+(?:correct|right|true|the\b) )
    | (?:(?:but|and|which|that|this)\s+){{0,2}}{_FAILS} | {_SECOND_THOUGHT}\Z
    | (?:では|じゃ)(?:ない|ありません) | [이가]\s?아(?:니|닙)
    | {_IS}\s+not\s+the\b | [(\[–—-]\s*(?:{_IS}\s+|this\s+is\s+)?{_WRONG} | \?\s*No\b | [❌✗✘] )""",
    re.VERBOSE | re.IGNORECASE,
)
_REJECTS_ITSELF = lazy_pattern(
    rf"[\w)\]][\s([,;:–—-]+(?:(?:which\s+)?{_IS}\s+{_ADVERB})?(?:{_WRONG}|not\s+the\b)|[❌✗✘]",
    re.VERBOSE | re.IGNORECASE,
)
_SAYS_WRONG = lazy_pattern("wrong|Wrong|WRONG|incorrect|Incorrect|false|mistaken|not|NOT|❌|✗|✘")
_TEXT = lazy_pattern(r"\\(?:text\w*|math[a-z]+|mbox)\s*\{|[{}~]|\\[ ,;:]")

_PART = r"""(?:half|halves|third|quarter|fourth|fifth|sixth|eighth|tenth|hundredth|square|cube|root
    |sum|product|difference|quotient|multiple|factor|divisor|power|reciprocal|inverse|opposite
    |negative|logarithm|percent|%)s?"""
_BOUND = lazy_pattern(
    rf"""(?:slightly\s+|much\s+|just\s+|strictly\s+|a\s+(?:bit|little)\s+)? (?:
      (?:greater|less|more|fewer|larger|smaller|bigger|higher|lower)\s+than
    | at\s+(?:least|most) | (?:no|not)\s+(?:more|less|fewer|greater)\s+than | up\s+to | between
    | over | under | above | below | beyond | within | twice | thrice | double | triple
    | (?:\w+\s+){{0,2}}?{_PART}\s+of ) \s+ (?=[$\\(\d−-])""",
    re.VERBOSE | re.IGNORECASE,
)
_THAN = lazy_pattern(
    r"""(?: \b(?:greater|less|more|fewer|larger|smaller|bigger|higher|lower)\s+than
      | \banswer\s+is\s+(?:at\s+(?:least|most)|up\s+to|above|below|over|under) )
      \s+ [$\\(\[*\s]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_OPERAND = lazy_pattern(
    rf"\b(?:than|{_PART}\s+of)\s+[$\\(*]*\Z",
    re.VERBOSE | re.IGNORECASE,
)


def is_denied(text: str, at: int) -> bool:
    """Whether what stands before ``at``, in its sentence, negates or doubts what follows.

    >>> text = "It is not true that n is 42."
    >>> is_denied(text, text.index("42")), is_denied("3 does not work, so it is 42", 26)
    (True, False)
    """
    start = max(text.rfind("\n", max(at - _WINDOW, 0), at) + 1, at - _WINDOW, 0)
    if start == at or _HINT.search(text, start, at) is None:
        return False
    before = text[start:at]
    return _NEGATED.search(before) is not None or _DENIED.search(before) is not None


def without_negation(clause: str) -> str | None:
    """What a clause goes on to say if it starts by negating it, else None.

    >>> without_negation("anything but 42"), without_negation("42")
    (' 42', None)
    """
    negation = _NEGATION.match(clause)
    return None if negation is None else clause[negation.end() :]


def is_disowned(text: str, at: int) -> bool:
    """Whether the answer named at ``at`` is another's, or supposed: "the wrong", "if the"."""
    start = max(at - 40, 0)
    if _DISOWNS.search(text, start, at) is None:
        return False
    return _DISOWNED.search(text, start, at) is not None


def is_rejected(text: str, end: int) -> bool:
    r"""Whether what stands behind ``end`` takes back what ended there.

    >>> is_rejected(r"\boxed{42} is wrong", 10), is_rejected("42 is not prime", 2)
    (True, False)
    """
    return _REJECTED.match(text, end) is not None


def rejects_itself(answer: str) -> bool:
    r"""Whether an answer takes itself back.

    >>> rejects_itself(r"42\text{ is wrong}"), rejects_itself(r"\text{not a function}")
    (True, False)
    """
    if not _SAYS_WRONG.search(answer):
        return False
    return _REJECTS_ITSELF.search(_TEXT.sub(" ", answer)) is not None


def is_bound(clause: str) -> bool:
    """Whether a clause starts by bounding or working on a number instead of stating it.

    >>> is_bound("at least 7"), is_bound("two thirds of 2"), is_bound("a total of 7")
    (True, True, False)
    """
    return _BOUND.match(clause) is not None


def bounds_another(text: str, at: int) -> bool:
    """Whether the answer marked at ``at`` only bounds another: "greater than", "is at least"."""
    start = max(at - 40, 0)
    if text.find("than", start, at) < 0 and text.find("answer is", start, at) < 0:
        return False
    return _THAN.search(text, start, at) is not None


def is_operand(text: str, at: int) -> bool:
    """Whether the number at ``at`` is no value of its own: "greater than 7", "half of 5"."""
    start = max(at - 40, 0)
    before = text[start:at].lower()
    if "than" not in before and "of" not in before:
        return False
    return _OPERAND.search(text, start, at) is not None
