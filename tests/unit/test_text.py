from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.text import clean, did_you_mean, one_line, slug, tag


@pytest.mark.parametrize("identifier", ["study_reg_01", "a.b-c", "X" * 80])
def test_a_safe_identifier_is_its_own_slug(identifier: str) -> None:
    assert slug(identifier) == identifier


@given(st.text(max_size=400))
def test_every_slug_is_a_safe_path_and_node_id_part(identifier: str) -> None:
    name = slug(identifier)

    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}", name)
    assert name not in (".", "..")


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b", "a_b"), ("a/b", "a:b"), ("é", "è"), ("x" * 300, "x" * 301), ("..", "."), ("", " ")],
)
def test_different_identifiers_have_different_slugs(one: str, other: str) -> None:
    assert slug(one) != slug(other)


def test_clean_keeps_text_and_escapes_what_breaks_terminals_and_xml() -> None:
    assert clean("é\n\tok") == "é\n\tok"
    assert clean("\x1b[31m\ud800\x00\r\n") == "\\x1b[31m\\ud800\\x00\n"


def test_one_line_squeezes_and_cuts() -> None:
    assert one_line(" a \n\u00a0 b ") == "a b"
    assert one_line("x" * 300, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("value", "name"),
    [("topic study", "topic_study"), ("skip", "tag_skip"), ("2nd", "tag_2nd"), ("--", "")],
)
def test_tags_are_marker_names_without_side_effects(value: str, name: str) -> None:
    assert tag(value) == name


def test_did_you_mean() -> None:
    assert did_you_mean("gneui", ["genui", "other"]) == " Did you mean 'genui'?"
    assert did_you_mean("zzz", ["genui"]) == ""
