from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

import pandas as pd
import pytest

from pytest_agentbench.datasets import Dataset, load, read_json, spooled
from pytest_agentbench.errors import DataError

ROWS = [{"task_id": "a", "n": "1"}, {"task_id": "b", "n": "é"}]


def nothing() -> list[dict[str, object]]:
    return []


def write_files(directory: Path) -> None:
    frame = pd.DataFrame(ROWS)
    frame.to_parquet(directory / "rows.parquet")
    frame.to_csv(directory / "rows.csv", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    (directory / "rows.json").write_text(json.dumps(ROWS), encoding="utf-8")
    lines = "\ufeff" + "\n\n".join(json.dumps(row) for row in ROWS)
    (directory / "rows.jsonl").write_text(lines, encoding="utf-8")


def test_the_same_rows_have_one_fingerprint_in_every_format(tmp_path: Path) -> None:
    write_files(tmp_path)

    found = [load(str(path), bundled=nothing) for path in sorted(tmp_path.iterdir())]

    assert [dict(row.cells) for row in found[0].rows] == ROWS
    assert len({dataset.fingerprint for dataset in found}) == 1
    assert len(found) == 4


def test_a_changed_cell_changes_one_row_hash_and_the_fingerprint() -> None:
    before = Dataset.build("x", ROWS)
    after = Dataset.build("x", [ROWS[0], {**ROWS[1], "n": "2"}])

    assert before.rows[0].sha256 == after.rows[0].sha256
    assert before.rows[1].sha256 != after.rows[1].sha256
    assert before.fingerprint != after.fingerprint


def test_csv_cells_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("task_id,n\nNA,007\n", encoding="ascii")

    assert dict(load(str(path), bundled=nothing).rows[0].cells) == {"task_id": "NA", "n": "007"}


def test_a_directory_of_one_kind(tmp_path: Path) -> None:
    for name, row in zip("ab", ROWS, strict=True):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row), encoding="utf-8")

    assert len(load(str(tmp_path), bundled=nothing).rows) == 2


def test_a_directory_of_several_kinds_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path)

    with pytest.raises(DataError, match="several kinds"):
        load(str(tmp_path), bundled=nothing)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b'{"a": 1}\n{broken\n', "line 2 is not JSON"),
        ("rows.jsonl", b"[1]\n", "line 1: expected an object"),
        ("rows.json", b"{}", "expected a list of objects"),
        ("rows.parquet", b"PAR1 not really", "cannot read"),
        ("rows.csv", b"", "cannot read"),
        ("rows.xlsx", b"x", "unknown type"),
    ],
)
def test_a_broken_file_is_one_clear_error(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(DataError, match=message):
        load(str(path), bundled=nothing)


def test_what_is_not_there_says_what_is_accepted() -> None:
    with pytest.raises(DataError, match="is not there.*Hub id"):
        load("no/such/rows.parquet", bundled=nothing)


def test_a_hub_id_without_network_or_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    begin = time.monotonic()
    with pytest.raises(DataError, match=r"neither reachable on the Hub.*--bench-data=bundled"):
        load("nobody/no_such_dataset_xyz", bundled=nothing)

    assert time.monotonic() - begin < 30


def test_a_cached_hub_dataset_works_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    cache = tmp_path / "cache"
    datasets.load_dataset("json", data_files=str(source), cache_dir=str(cache))
    # laid out as if it had come from the Hub: org___name/config/version/hash/name-split.arrow
    (config,) = (cache / "json").iterdir()
    config = config.rename(config.with_name("default"))
    for file in list(config.glob("*/*/json-*")):
        file.rename(file.with_name(file.name.replace("json-", "suite-")))
    (cache / "json").rename(cache / "acme___suite")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    found = load("acme/suite", bundled=nothing)

    assert [row.cells["task_id"] for row in found.rows] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    ['{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, "{'a': 1}", "", '{"a": Infinity}'],
)
def test_read_json_is_strict(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_json(text)


def make_slowly(directory: Path) -> None:
    def make() -> Dataset:
        (directory / f"made-{multiprocessing.current_process().pid}").touch()
        time.sleep(0.3)
        return Dataset.build("source", ROWS)

    dataset = spooled(directory / "spool", "key", make)
    (directory / f"got-{multiprocessing.current_process().pid}").write_text(
        dataset.fingerprint + str([dict(row.cells) for row in dataset.rows]), encoding="utf-8"
    )


def test_several_processes_resolve_a_source_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=make_slowly, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert len(list(tmp_path.glob("made-*"))) == 1
    got = [path.read_text(encoding="utf-8") for path in tmp_path.glob("got-*")]
    assert len(got) == 3
    assert len(set(got)) == 1
