"""Writes the files of a challenge: the same bytes on every machine."""

from __future__ import annotations

import csv
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "Row",
    "grey_png",
    "one_page_pdf",
    "write_bytes",
    "write_challenge",
    "write_csv",
    "write_text",
]

Row = dict[str, Any]


def write_challenge(
    place: Path,
    spec: Mapping[str, Any],
    train: Sequence[Row],
    test: Sequence[Row],
    labels: Sequence[Row] | None = None,
) -> None:
    """Write ``challenge.toml``, train, test and labels."""
    spec = {**spec, "train": "train.csv", "test": "test.csv", "labels": "labels.csv"}
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / "challenge.toml", "".join(f"{k} = {_toml(v)}\n" for k, v in spec.items()))
    write_csv(place / "train.csv", train)
    if labels is None:
        target = spec["prediction"][0]
        labels = [{name: row[name] for name in (*spec["id"], target)} for row in test]
        test = [{name: cell for name, cell in row.items() if name != target} for row in test]
    write_csv(place / "test.csv", test)
    write_csv(place / "labels.csv", labels)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)  # the same for texts, numbers and lists of texts


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def grey_png(points: Sequence[Sequence[int]]) -> bytes:
    """An 8-bit grey PNG of rows of *points*, 0 (black) to 255.

    Stored, not compressed: so the bytes do not depend on the version of zlib.
    """
    raw = b"".join(b"\0" + bytes(row) for row in points)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", len(points[0]), len(points), 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(raw, 0))
        + chunk(b"IEND", b"")
    )


def one_page_pdf(lines: Iterable[str]) -> bytes:
    """A PDF of one page with *lines* (ASCII, without parentheses) of text."""
    text = "".join(f"({line}) Tj T*\n" for line in lines)
    stream = f"BT /F1 11 Tf 14 TL 50 780 Td\n{text}ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return (body + head + end).encode("ascii")
