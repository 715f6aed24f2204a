"""Text that is safe to print, to store and to use as a name."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable

__all__ = [
    "WIDTH",
    "clean",
    "did_you_mean",
    "file_name",
    "first_line",
    "one_line",
    "score_text",
    "shorten",
    "slug",
    "squeeze",
    "tag",
]

#: Columns of a terminal that lines are made for.
WIDTH = 80
#: Longest directory name or node id part that is made from a task id.
MAX_SLUG = 80

# C0 and C1 controls except tab and line feed; they break terminals and are illegal in XML 1.0
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_WORD = re.compile(r"[^A-Za-z0-9_]+")
#: Marker names with a meaning of their own in pytest, and the words of ``-m`` expressions.
_RESERVED = frozenset(
    "and or not True False None skip skipif xfail parametrize usefixtures filterwarnings tryfirst "
    "trylast bench xdist_group timeout flaky".split()
)


def clean(text: str) -> str:
    """*text* without control characters and lone surrogates (written as escapes instead)."""
    text = text.replace("\r\n", "\n")
    text = _SURROGATES.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
    return _CONTROLS.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


def shorten(text: str, limit: int) -> str:
    """*text* cut to *limit* characters, the cut marked."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def squeeze(text: str) -> str:
    """*text* with each run of white space (no-break space included) as one space."""
    return re.sub(r"\s+", " ", text)


def one_line(text: str, limit: int = 200) -> str:
    """*text* as one printable line of at most *limit* characters."""
    return shorten(squeeze(clean(text)).strip(), limit)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type's name where there is none."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def slug(identifier: str) -> str:
    """A path and node id part for *identifier*: ASCII, at most 80 characters, unique.

    An identifier that is already safe is returned as it is; any other one gets eight hex digits of
    its SHA-256 appended, so that two different identifiers never share a slug by being cleaned.
    """
    safe = _UNSAFE.sub("_", identifier.encode("ascii", "replace").decode().replace("?", "_"))
    safe = safe.lstrip(".-")
    if safe == identifier and 0 < len(safe) <= MAX_SLUG and not safe.endswith("."):
        return safe
    digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    stem = safe.strip("._-")[: MAX_SLUG - 9] or "task"
    return f"{stem}-{digest}"


def tag(value: str) -> str:
    """A pytest marker name for a dataset value, or ``""`` when nothing is left of it."""
    name = _NOT_WORD.sub("_", value).strip("_")[:MAX_SLUG]
    return f"tag_{name}" if name in _RESERVED or name[:1].isdigit() else name


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` when one of *known* is close to *word*, else an empty string."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def file_name(name: str) -> str:
    """A file's name to be shown: bytes that are no UTF-8, and control characters, as escapes."""
    return clean(os.fsencode(name).decode("utf-8", "backslashreplace"))


def score_text(score: float) -> str:
    """*score* with three digits, or as many as it takes not to look like full marks."""
    text = f"{score:.3g}"
    return text if float(text) < 1.0 or score >= 1.0 else repr(score)


def count(number: int, word: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
