"""agentds: what is said of submissions, right, odd and wrong."""

from __future__ import annotations

import csv
import gzip
import io
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.benchmarks.agentds.challenge import Challenge, published
from pytest_agentbench.benchmarks.agentds.ids import Ids
from pytest_agentbench.benchmarks.agentds.labels import Truth
from pytest_agentbench.benchmarks.agentds.problems import Submission
from pytest_agentbench.benchmarks.agentds.submission import read_submission

SPECS = {spec["key"]: Challenge.parse(spec) for spec in published()}
HEADERS = {key: challenge.header for key, challenge in SPECS.items()}


def truth_of(key: str, ids: Sequence[str], values: Sequence[Any], items: Any = None) -> Truth:
    """The truth of a challenge: composite ids are written with a bar."""
    challenge = SPECS[key]
    frame = pd.DataFrame([text.split("|") for text in ids], columns=list(challenge.ids))
    if challenge.metric.wants == "labels":
        codes = [challenge.values.index(value) for value in values]
        return Truth(Ids.of(frame), pd.Series(codes).to_numpy(), challenge.values)
    if challenge.ranking:
        return Truth(Ids.of(frame), tuple(map(frozenset, values)), items=items)
    return Truth(Ids.of(frame), pd.Series(values, dtype=float).to_numpy())


ITEMS = frozenset(map(str, range(1, 751)))
TRUTHS = {
    "commerce-3": truth_of("commerce-3", "1234", "0101"),
    "insurance-1": truth_of("insurance-1", ["A", "B"], ["Simple", "Moderate"]),
    "food-1": truth_of("food-1", "1234", [1.0, 2.0, 3.0, 4.0]),
    "insurance-2": truth_of("insurance-2", "1234", [0, 5, 0, 1]),
    "banking-2": truth_of("banking-2", ["C1|1", "C1|2", "C2|1"], "010"),
    "manufacturing-1": truth_of(
        "manufacturing-1", ["2025-01-01T00:00:00Z|M1", "2025-01-01T01:00:00Z|M1"], "01"
    ),
    "manufacturing-3": truth_of(
        "manufacturing-3", ["2025-01-01|day|M1", "2025-02-01|day|M1"], [0.0, 2.0]
    ),
    "healthcare-3": truth_of("healthcare-3", "1234", "0101"),
    "commerce-2": truth_of("commerce-2", ["1", "2"], [{"5"}, {"7", "8"}], ITEMS),
    "zeros": truth_of("commerce-3", ["001", "002", "010"], "010"),
}


def read(
    tmp_path: Path,
    content: str | bytes | None,
    key: str,
    *,
    name: str = "submission.csv",
    **more: Any,
) -> Submission:
    """What is said of *content* as the submission to challenge *key*."""
    if content is not None:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
    options = {"max_bytes": 10_000_000, "headers": HEADERS, **more}
    challenge = SPECS["commerce-3" if key == "zeros" else key]
    return read_submission(tmp_path, challenge, TRUTHS[key], **options)


def said(submission: Submission) -> str:
    return "\n".join(f"{problem.kind}: {problem.message}" for problem in submission.problems)


@dataclass(frozen=True)
class Case:
    """A submission and what must be said: kinds of problems, and parts of the messages."""

    content: str | bytes | None
    kinds: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    key: str = "commerce-3"
    warns: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    name: str = "submission.csv"


OFFERS = "offer_id,target_redeem\n"
GOOD = OFFERS + "1,0\n2,1\n3,0\n4,1\n"
DAYS = "batch_id,shelf_life_remaining_days\n"
CLAIMS = "ClaimID,ClaimComplexityLabel\n"
WEEKS = "CustomerID,Week,DefaultLabel\n"
WIDE = ",".join(["customer_id", *(f"sku_id_{n}" for n in range(1, 11))]) + "\n"
TEN = "5,6,7,8,9,10,11,12,13,14"
#: By the number that the handed list of malformed submissions gives them.
CASES = {
    "M01": Case(OFFERS + "1,0\n2,1\n4,0\n", ("row_count", "missing_ids"), ("3 rows", "4", "'3'")),
    "M02": Case(
        GOOD + "5,1\n", ("row_count", "unknown_ids"), ("5 rows where 4", "offer_id", "'5'")
    ),
    "M03": Case("offer_id,prediction\n1,yes\n", ("header",), ("target_redeem", "'prediction'")),
    "M04": Case("target_redeem,offer_id\n0,1\n", ("header",), ("another order",)),
    "M05": Case("Offer_ID,target_redeem\n1,0\n", ("header",), ("'Offer_ID'", "case")),
    "M06": Case("offer_id,target_redeem \n1,0\n", ("header",), ("'target_redeem '", "blanks")),
    "M07": Case(",offer_id,target_redeem\n0,1,0\n", ("header",), ("to_csv(index=False)",)),
    "M08": Case("offer_id,target_redeem,prob\n1,0,0.1\n", ("header",), ("'prob'",)),
    "M09": Case(OFFERS + "1,0\n1,1\n3,0\n4,1\n", ("duplicate_ids", "missing_ids"), ("'1'", "'2'")),
    "M10": Case(WEEKS + "C1,1,0\nC1,2,1\nC2,1,0\n", key="banking-2"),
    "M11": Case(
        WEEKS + "C1,1,0\nC1,1,1\nC2,1,0\n",
        ("duplicate_ids", "missing_ids"),
        ("CustomerID, Week", "'C1/1'", "'C1/2'"),
        "banking-2",
    ),
    "M12": Case(
        OFFERS + "1,0\n2,1\n3,0\n999,1\n", ("unknown_ids", "missing_ids"), ("'999'", "'4'")
    ),
    "M13": Case(OFFERS + "4,1\n2,1\n1,0\n3,0\n"),
    "M14": Case(OFFERS + "1,0\n2,\n3,0\n4,1\n", ("missing_value",), ("target_redeem", "'2'")),
    "M15": Case(
        DAYS + "1,1\n2,inf\n3,1\n4,1\n",
        ("not_finite",),
        ("shelf_life_remaining_days", "'inf'", "'2'"),
        "food-1",
    ),
    "M16": Case(
        OFFERS + "1,None\n2,1\n3,NA\n4,1\n", ("missing_value",), ("target_redeem", "'1', '3'")
    ),
    "M17": Case(
        CLAIMS + "NA,Simple\nB,Simple\n",
        ("unknown_ids", "missing_ids"),
        ("ClaimID", "'NA'", "keep_default_na=False"),
        "insurance-1",
    ),
    "M18": Case(
        DAYS + "1,1\n2,yes\n3,1\n4,1\n", ("not_a_number",), ("'yes'", "'2'", "days"), "food-1"
    ),
    "M19": Case(
        OFFERS + "1,0.2\n2,0.7\n3,0.1\n4,0.9\n",
        ("unknown_label",),
        ("target_redeem", "0|1", "'0.2'", "threshold"),
    ),
    "M20": Case(OFFERS + "1,0.0\n2,1.0\n3,0.0\n4,1.0\n"),
    "M21": Case(OFFERS + "1,False\n2,True\n3,False\n4,True\n"),
    "M22": Case(OFFERS + "1,2\n2,1\n3,0\n4,1\n", ("unknown_label",), ("'2'", "0|1", "'1'")),
    "M23": Case(
        CLAIMS + "A,simple\nB,Medium\n",
        ("unknown_label",),
        ("Simple|Moderate|Complex", "'simple'", "'Medium'"),
        "insurance-1",
    ),
    "M24": Case(
        CLAIMS + "A,0\nB,1\n", ("unknown_label",), ("look like codes", "Simple|"), "insurance-1"
    ),
    "M25": Case(b"", ("empty",), ("is empty",)),
    "M26": Case(OFFERS, ("empty",), ("no rows",)),
    "M27": Case("1,0\n2,1\n3,0\n4,1\n", ("header",), ("is the header missing",)),
    "M28": Case("offer_id;target_redeem\n1;0\n", ("header",), ("semicolons",)),
    "M29": Case(b"\xef\xbb\xbf" + GOOD.encode()),
    "M30": Case(GOOD.encode("utf-16"), ("encoding",), ("UTF-16",)),
    "M31": Case(GOOD.replace("\n", "\r\n\r\n")),
    "M32": Case(
        OFFERS + "1,0\n2,1,9\n3,0\n4,1\n", ("ragged_rows",), ("line 3 has 3", "without 2 fields")
    ),
    "M33": Case(
        OFFERS + "0,1,0\n1,2,1\n2,3,0\n3,4,1\n", ("ragged_rows",), ("4 rows", "index=False")
    ),
    "M34": Case(
        OFFERS + "1,0,\n2,1,\n3,0,\n4,1,\n", ("ragged_rows",), ("the lines end with a comma",)
    ),
    "M35": Case(
        OFFERS + "1,0\n2,1\n10,0\n",
        ("unknown_ids", "missing_ids"),
        ("leading zeros", "'001'"),
        "zeros",
    ),
    "M36": Case(OFFERS + "1.0,0\n2.0,1\n3.0,0\n4.0,1\n"),
    "M37": Case(
        "timestamp,machine_id,failure_24h\n"
        "2025-01-01 00:00:00+00:00,M1,0\n2025-01-01 01:00:00+00:00,M1,1\n",
        ("unknown_ids", "missing_ids"),
        ("timestamp", "keep them as text", "2025-01-01T00:00:00Z/M1"),
        "manufacturing-1",
    ),
    "M38": Case(
        "date,shift,machine_id,HoursDelayed\n1/1/2025,day,M1,0\n2/1/2025,day,M1,0\n",
        ("unknown_ids", "missing_ids"),
        ("'1/1/2025/day/M1'", "keep them as text"),
        "manufacturing-3",
    ),
    "M39": Case("target_redeem\n0\n1\n", ("header",), ("without offer_id",)),
    "M40": Case(
        OFFERS + " ,0\n2,1\n3,0\n4,1\n", ("blank_ids", "missing_ids"), ("blank offer_id", "'1'")
    ),
    "M41": Case("offer_id,offer_id\n1,0\n", ("header",), ("'offer_id' stands twice",)),
    "M42": Case(
        DAYS + '1,"1,234.5"\n2,$123\n3,1\n4,1\n',
        ("not_a_number",),
        ("'1,234.5'", "'$123'", "'1', '2'", "currency"),
        "food-1",
    ),
    "M43": Case(DAYS + "1,-3\n2,1\n3,1\n4,1\n", key="food-1", warns="1 prediction below 0"),
    "M44": Case(
        WIDE + f"1,{TEN}\n1,{TEN}\n",
        ("duplicate_ids", "missing_ids"),
        ("customer_id", "'1'", "one row per id"),
        "commerce-2",
    ),
    "M45": Case(
        WIDE + "1,5,5,5,5,5,5,5,5,5,5\n" + f"2,{TEN}\n",
        ("repeated_items",),
        ("sku_id", "twice", "'1'"),
        "commerce-2",
    ),
    "M46": Case(
        WIDE + f"1,{TEN}\n2,5,6,7,8,9,10,11,12,13,9999\n",
        key="commerce-2",
        warns="'9999'",
    ),
    "M47": Case(
        WIDE + f"1,{TEN}\n1,{TEN}\n2,{TEN}\n",
        ("row_count", "duplicate_ids"),
        ("3 rows where 2", "one row per id"),
        "commerce-2",
    ),
    "M48": Case("customer_id,sku_id\n1,5\n1,6\n", ("header",), ("one row per", "10"), "commerce-2"),
    "M49": Case(
        WIDE + f"1,5,6,7,8,9,10,11,12,,\n2,{TEN}\n",
        ("missing_value",),
        ("sku_id_9, sku_id_10", "'1'"),
        "commerce-2",
    ),
    "M50": Case("PolicyID,NextYearLoss\n1,1.0\n2,1.0\n3,1.0\n4,1.0\n", key="insurance-2"),
    "M51": Case(None, ("submission",), ("there is no submission.csv",)),
    "M52": Case(GOOD, ("size",), ("larger than", "--bench-agentds-max-mb"), more={"max_bytes": 20}),
    "M53": Case(
        GOOD,
        ("submission",),
        ("no submission.csv", "out/predictions.csv"),
        name="predictions.csv",
        more={"changed": ("notes.txt", "out/predictions.csv")},
    ),
    "M54": Case(
        "admission_id,readmit_30d\n1,0\n",
        ("header",),
        ("stay_id", "header of healthcare-1"),
        "healthcare-3",
    ),
    # more of the same kinds
    "gzip": Case(gzip.compress(GOOD.encode()), ("encoding",), ("gzip",)),
    "a quote that is never closed": Case(
        OFFERS + '"1,0\n2,1\n3,0\n4,1\n', ("ragged_rows",), ("1 row without 2", "never closed")
    ),
    "tabs": Case(GOOD.replace(",", "\t"), ("header",), ("tabs",)),
    "index named": Case("index,offer_id,target_redeem\n0,1,0\n", ("header",), ("index=False",)),
    "latin-1": Case(OFFERS.encode() + b"1,0\n\xe9,1\n", ("encoding",), ("not UTF-8", "line 3")),
    "zero byte": Case(OFFERS + "1,0\n2,\0\n", ("encoding",), ("zero byte", "line 3")),
    "only blanks": Case(" \n\n", ("empty",), ("is empty",)),
    "ids in scientific notation": Case(
        OFFERS + "1e0,0\n2e0,1\n3e0,0\n4e0,1\n", ("unknown_ids", "missing_ids"), ("scientific",)
    ),
    "ids in another case": Case(
        CLAIMS + "a,Simple\nb,Simple\n", ("unknown_ids", "missing_ids"), ("case",), "insurance-1"
    ),
    "blanks around ids": Case(
        CLAIMS + "A ,Simple\n B,Simple\n",
        ("unknown_ids", "missing_ids"),
        ("blanks",),
        "insurance-1",
    ),
    "quotes": Case('"offer_id","target_redeem"\n"1","0"\n"2","1"\n"3","0"\n"4","1"\n'),
    "old Mac": Case(GOOD.replace("\n", "\r")),
    "no last line feed": Case(GOOD.rstrip()),
    "a blank of another alphabet": Case(OFFERS + "\u00a0\n\u2028\n", ("empty",), ("no rows",)),
    "blank lines first": Case(
        "\n\n" + OFFERS + "1,0\n2,1,9\n3,0\n4,1\n", ("ragged_rows",), ("line 5 has 3",)
    ),
    "blanks around numbers": Case(DAYS + "1, 1\n2,1 \n3,1\n4,1\n", key="food-1"),
    "huge": Case(DAYS + "1,1e400\n2,1\n3,1\n4,1\n", ("not_finite",), ("'1e400'",), "food-1"),
    "decimal comma": Case(
        DAYS + '1,"1,5"\n2,"2,5"\n3,1\n4,1\n', ("not_a_number",), ("a point",), "food-1"
    ),
    "several at once": Case(
        OFFERS + "1,7\n9,1\n3,\n",
        ("row_count", "unknown_ids", "missing_ids", "missing_value", "unknown_label"),
        ("'9'", "'2', '4'", "'3'", "'7'"),
    ),
    "items as floats": Case(
        WIDE + "1,5.0,6.0,7.0,8.0,9.0,10.0,11.0,12.0,13.0,14.0\n" + f"2,{TEN}\n", key="commerce-2"
    ),
    "an item twice, once as a float": Case(
        WIDE + "1,5,5.0,7,8,9,10,11,12,13,14\n" + f"2,{TEN}\n",
        ("repeated_items",),
        ("twice",),
        "commerce-2",
    ),
    "one list in a cell": Case(
        'customer_id,sku_id\n1,"[5, 6, 7]"\n', ("header",), ("10 columns",), "commerce-2"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    content: Any = case.content

    submission = read(tmp_path, content, case.key, name=case.name, **case.more)

    text = said(submission)
    assert tuple(problem.kind for problem in submission.problems) == case.kinds, text
    assert [part for part in case.parts if part not in text] == []
    assert (submission.values is None) == bool(case.kinds)
    if case.warns:
        assert case.warns in "\n".join(submission.warnings)
    else:
        assert not submission.warnings


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("M10", [0, 1, 0]),
        ("M13", [0, 1, 0, 1]),
        ("M20", [0, 1, 0, 1]),
        ("M21", [0, 1, 0, 1]),
        ("M29", [0, 1, 0, 1]),
        ("M31", [0, 1, 0, 1]),
        ("M36", [0, 1, 0, 1]),
        ("M43", [-3.0, 1.0, 1.0, 1.0]),
        ("M50", [1.0, 1.0, 1.0, 1.0]),
        ("quotes", [0, 1, 0, 1]),
        ("blanks around numbers", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_what_is_read(tmp_path: Path, name: str, values: list[float]) -> None:
    case = CASES[name]

    found = read(tmp_path, case.content, case.key)

    assert found.values.tolist() == values


def test_the_handed_cases_are_all_here(shared_data: Path) -> None:
    with (shared_data / "agentds" / "malformed_cases.csv").open(newline="") as file:
        handed = [row["id"] for row in csv.DictReader(file)]

    assert len(handed) == 54
    assert [name for name in handed if name not in CASES] == []


def test_a_zip_file_is_told(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("submission.csv", GOOD)

    assert "zip" in said(read(tmp_path, packed.getvalue(), "commerce-3"))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text(GOOD)
    (tmp_path / "submission.csv").symlink_to(tmp_path / "there.csv")

    submission = read(tmp_path, None, "commerce-3")

    assert "is a link" in said(submission)


def test_a_directory_or_a_pipe_is_no_submission(tmp_path: Path) -> None:
    import os

    (tmp_path / "a" / "submission.csv").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "submission.csv")

    for name in ("a", "b"):
        assert "no regular file" in said(read(tmp_path / name, None, "commerce-3"))


def test_only_the_first_ids_are_named(tmp_path: Path) -> None:
    frame = pd.DataFrame({"offer_id": [str(n) for n in range(1000)]})
    truth = Truth(Ids.of(frame), pd.Series([0] * 1000).to_numpy(), ("0", "1"))
    (tmp_path / "submission.csv").write_text(OFFERS + "x,0\n" * 2000)

    found = read_submission(tmp_path, SPECS["commerce-3"], truth, max_bytes=10**7, headers=HEADERS)

    text = said(found)
    assert "'x', 'x', 'x', 'x', 'x' and 1995 more" in text
    assert "'0', '1', '2', '3', '4' and 995 more" in text
    assert len(text) < 700


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: text,
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: "\n".join(
            ",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines()
        ),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_how_it_is_written_changes_nothing(
    tmp_path: Path, rewrite: Callable[[str], str], seed: int
) -> None:
    rows = ["1,3.5", "2,1e2", "3,-0.0", "4,7"]
    random.Random(seed).shuffle(rows)

    found = read(tmp_path, rewrite(DAYS + "\n".join(rows) + "\n"), "food-1")

    assert not found.problems
    assert found.values.tolist() == [3.5, 100.0, 0.0, 7.0]


def test_rankings_and_labels_are_aligned_too(tmp_path: Path) -> None:
    other = "20,21,22,23,24,25,26,27,28,29"

    ranked = read(tmp_path, WIDE + f"2,{other}\n1,{TEN}\n", "commerce-2")
    labelled = read(tmp_path, OFFERS + "3,1\n1,0\n4,1\n2,0\n", "commerce-3")

    assert ranked.values == [tuple(TEN.split(",")), tuple(other.split(","))]
    assert labelled.values.tolist() == [0, 0, 1, 1]


texts = st.text('01.,\u00a0\u2028\ufeff\x85"\n\r;\te-+ aN\0é', max_size=40)


@given(texts)
def test_nothing_that_is_written_raises(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        for start in ("", OFFERS, DAYS):
            key = "food-1" if start == DAYS else "commerce-3"
            found = read(Path(place), start + text, key)

            assert bool(found.problems) == (found.values is None)


ids = st.lists(st.tuples(st.text("ab01", max_size=3), st.text("xé", max_size=2)), unique=True)


@given(ids.filter(bool), st.randoms(use_true_random=False))
def test_ids_find_themselves_in_any_order(
    pairs: list[tuple[str, str]], chance: random.Random
) -> None:
    mine = Ids.of(pd.DataFrame(pairs, columns=["one", "other"]))
    order = list(range(len(pairs)))
    chance.shuffle(order)
    theirs = Ids.of(pd.DataFrame([pairs[n] for n in order], columns=["one", "other"]))

    assert mine.match(theirs.columns).tolist() == order
    # and where one is strange, the others still do
    strange = [("?", "?"), *(pairs[n] for n in order[1:])]
    given_ids = Ids.of(pd.DataFrame(strange, columns=["one", "other"]))
    assert mine.match(given_ids.columns).tolist() == [-1, *order[1:]]
