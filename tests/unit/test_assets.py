"""Archives and file lists that nobody vouches for."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.assets import (
    AssetError,
    SeedFile,
    pack,
    safe_name,
    seed_files,
    unpack,
    write_files,
)


def archive(*members: dict[str, Any], compress: bool = True) -> str:
    """The base64 text of a tar.gz with *members*: name, and whatever differs from a small file."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member["name"])
            info.type = member.get("type", tarfile.REGTYPE)
            info.mode = member.get("mode", 0o644)
            info.linkname = member.get("link", "")
            info.pax_headers = member.get("pax", {})
            data = member.get("data", b"x" if info.type == tarfile.REGTYPE else b"")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = raw.getvalue()
    return base64.b64encode(gzip.compress(data) if compress else data).decode()


def test_files_come_out_as_they_went_in() -> None:
    text = archive(
        {"name": "./", "type": tarfile.DIRTYPE},
        {"name": "a", "type": tarfile.DIRTYPE, "mode": 0},
        {"name": "./a/b.txt", "data": b"\xff\r\n"},
        {"name": "run.sh", "mode": 0o755},
    )

    assert unpack("\n".join(text[n : n + 60] for n in range(0, len(text), 60))) == {
        "a/b.txt": SeedFile("a/b.txt", b"\xff\r\n"),
        "run.sh": SeedFile("run.sh", b"x", executable=True),
    }


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ({"name": "../out"}, "leads out"),
        ({"name": "a/../../out"}, "leads out"),
        ({"name": "/etc/x"}, "absolute"),
        ({"name": "l", "type": tarfile.SYMTYPE, "link": "x"}, "is a link"),
        ({"name": "l", "type": tarfile.LNKTYPE, "link": "x"}, "is a link"),
        ({"name": "p", "type": tarfile.FIFOTYPE}, "neither a file nor a directory"),
        ({"name": "c", "type": tarfile.CHRTYPE}, "neither a file nor a directory"),
        ({"name": "s", "mode": 0o4755}, "set-id"),
        ({"name": "s", "mode": 0o2755}, "set-id"),
        ({"name": "a\\b"}, "backslash"),
        ({"name": "C:x"}, "drive letter"),
        ({"name": "a\nb"}, "control characters"),
        ({"name": "CON"}, "not the same on every system"),
        ({"name": "x. "}, "not the same on every system"),
        ({"name": "x" * 300}, "too long"),
        ({"name": "d/" * 70 + "f"}, "too deep"),
        ({"name": "f", "pax": {"comment": "A" * 70_000}}, "extended header"),
        ({"name": "f", "pax": {"GNU.sparse.major": "1"}}, "sparse"),
        ({"name": "f", "pax": {"path": "../out"}}, "leads out"),
        ({"name": "f", "pax": {"size": str(1 << 50)}}, "larger than 32 MiB"),
        ({"name": "big", "data": b"\0" * (33 << 20)}, "larger than 32 MiB"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_what_may_not_be_in_an_archive(member: dict[str, Any], reason: str) -> None:
    with pytest.raises(AssetError, match=reason):
        unpack(archive({"name": "first"}, member))


@pytest.mark.parametrize(
    ("one", "other"),
    [("f", "f"), ("A.txt", "a.txt"), ("caf\u00e9", "cafe\u0301"), ("f", "f/g"), ("F/g", "f/h")],
)
def test_names_that_clash_somewhere(one: str, other: str) -> None:
    with pytest.raises(AssetError, match="clash"):
        unpack(archive({"name": one}, {"name": other}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!!", "is not base64"),
        (base64.b64encode(b"PK\3\4").decode(), "is not gzip"),
        (archive({"name": "f"}, compress=False), "is not gzip"),
        (base64.b64encode(gzip.compress(b"\0" * 20480)[:-6]).decode(), "cut off"),
        (base64.b64encode(gzip.compress(b"no tar")).decode(), "not a usable tar"),
        (archive(*({"name": f"m/{n}"} for n in range(2001))), "more than 2000 members"),
        (archive(*({"name": f"f{n}", "data": b"\0" * (22 << 20)} for n in range(3))), "64 MiB"),
    ],
    ids=["base64", "zip", "plain", "cut", "text", "many", "large"],
)
def test_archives_that_cannot_be_used(text: str, reason: str) -> None:
    with pytest.raises(AssetError, match=reason):
        unpack(text)


def test_hostile_headers_take_no_time() -> None:
    digits = "1" * 60_000
    begin = time.monotonic()

    for pax in ({"comment": digits}, {digits: "x"}, {"comment": f"{digits} hdrcharset="}):
        assert len(unpack(archive(*({"name": f"f{n}", "pax": pax} for n in range(12))))) == 12
    with pytest.raises(AssetError, match="more than 16 parts"):
        unpack(base64.b64encode(gzip.compress(b"") * 100_000).decode())

    assert time.monotonic() - begin < 60  # not hours


def damaged(change: str) -> str:
    data = bytearray(gzip.decompress(base64.b64decode(archive({"name": "a"}, {"name": "b"}))))
    second = data.index(b"b\0\0")
    if change == "bit":
        data[second + 124] ^= 1
    elif change == "cut":
        del data[second + 100 :]
    elif change == "no end":
        del data[second + 1024 :]
    else:
        data[-1] = 1
    return base64.b64encode(gzip.compress(bytes(data))).decode()


@pytest.mark.parametrize("change", ["bit", "cut", "no end", "behind"])
def test_a_damaged_archive_is_not_half_read(change: str) -> None:
    with pytest.raises(AssetError, match="not a usable tar archive"):
        unpack(damaged(change))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_in_every_form(form: int) -> None:
    name = "/".join(["d" * 60] * 2 + ["f" * 90])
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as tar:
        info = tarfile.TarInfo(name)
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))

    found = unpack(base64.b64encode(gzip.compress(raw.getvalue())).decode())

    assert {key: file.data for key, file in found.items()} == {name: b"abc"}


def test_a_small_list_does_not_make_a_large_workspace() -> None:
    assets = {"a": SeedFile("a", bytes(30 << 20))}
    entries = [{"source": "a", "dest": f"f{n}"} for n in range(5)]

    with pytest.raises(AssetError, match="entry 3: with it the workspace holds more than 64 MiB"):
        seed_files(entries, assets)


def test_the_same_files_pack_the_same_and_come_back() -> None:
    files = {"b/c.bin": bytes(range(256)), "a.txt": b""}

    text = pack(files)

    assert pack(dict(reversed(files.items()))) == text
    assert {name: file.data for name, file in unpack(text).items()} == files


@given(st.text(max_size=80))
def test_a_safe_name_stays_inside_and_is_itself(name: str) -> None:
    try:
        safe = safe_name(name)
    except AssetError:
        return
    assert not safe.startswith("/")
    assert not {"", ".", ".."} & set(safe.split("/"))
    assert safe_name(safe) == safe


ASSETS = {name: SeedFile(name, name.encode()) for name in ("data/x.csv", "data/deep/y.csv")}


@pytest.mark.parametrize(
    ("entry", "files"),
    [
        ({"path": "notes/a.md", "content": "x\r\n\u00ff"}, {"notes/a.md": b"x\r\n\xc3\xbf"}),
        ({"source": "data/x.csv", "dest": "in/x.csv"}, {"in/x.csv": b"data/x.csv"}),
        ({"source": "data/x.csv", "dest": "sub/"}, {"sub/x.csv": b"data/x.csv"}),
        (
            {"source": "data", "dest": "d"},
            {"d/x.csv": b"data/x.csv", "d/deep/y.csv": b"data/deep/y.csv"},
        ),
    ],
)
def test_entries_and_what_they_put_there(
    entry: object, files: dict[str, bytes], tmp_path: Path
) -> None:
    seeded = seed_files([entry], ASSETS)
    write_files(tmp_path, seeded)

    found = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*.*")}
    assert {file.name: file.data for file in seeded} == files
    assert found == files


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (["a.txt"], "entry 1: expected an object, found str"),
        ([{}], "expected a text under 'source', it is missing"),
        ([{"path": "a", "content": None}], "expected a text under 'content', found NoneType"),
        ([{"path": "a", "content": "\ud800"}], "lone surrogate"),
        ([{"path": "a", "content": "", "source": "data/x.csv"}], "both a content and a source"),
        ([{"source": "no.csv", "dest": "x"}], "the source 'no.csv' is not among"),
        ([{"source": "../x", "dest": "x"}], "leads out"),
        ([{"source": "data/x.csv", "dest": ""}], "names no file"),
        ([{"path": ".", "content": ""}], "names no file"),
        ([{"path": "a", "content": ""}, {"path": "A", "content": ""}], "entry 2: .*clash"),
        ([{"path": "a", "content": ""}, {"path": "a/b", "content": ""}], "entry 2: .*clash"),
    ],
)
def test_entries_that_cannot_be_used(entries: list[object], reason: str) -> None:
    with pytest.raises(AssetError, match=reason):
        seed_files(entries, ASSETS)


def test_the_handed_archives(shared_data: Path) -> None:
    good = {"ok", "ok_dot_prefix", "mode000_dir", "chown", "mtime_huge", "mtime_neg", "empty"}
    accepted = set()
    for path in sorted((shared_data / "hostile/tar").glob("*.tar.gz")):
        try:
            unpack(base64.b64encode(path.read_bytes()).decode())
        except AssetError:
            continue
        accepted.add(path.name.removesuffix(".tar.gz"))

    assert accepted == good


def test_the_handed_file_lists(shared_data: Path, tmp_path: Path) -> None:
    text = (shared_data / "hostile/rows/workspace_files.json").read_text()
    cases = json.loads(text.replace("__OUT__", str(tmp_path)))
    good = {
        *("ok_inline", "ok_asset", "source_is_dir", "dest_is_dir_slash", "content_crlf"),
        *("content_nul", "path_git_hook", "path_conftest"),
    }
    accepted = set()
    for name, entries in cases.items():
        if isinstance(entries, list):
            try:
                seed_files(entries, ASSETS)
            except AssetError:
                continue
            accepted.add(name)

    assert accepted == good
