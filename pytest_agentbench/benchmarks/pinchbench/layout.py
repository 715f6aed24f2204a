"""PinchBench's own layout on disk, and its rows: ``tasks/*.md``, ``assets/``, ``manifest.yaml``.

A task file is YAML front matter and Markdown sections.  The parser reads what upstream's reads, its
oddities included: a line ``## X`` starts a section even inside a code fence, the last section of a
name wins, and the line feed before the closing ``---`` is not part of the front matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.assets import AssetError, SeedFile, pack, safe_name, unpack
from pytest_agentbench.datasets import Row
from pytest_agentbench.errors import DataError
from pytest_agentbench.text import one_line
from pytest_agentbench.workspace import read_regular

__all__ = ["COLUMNS", "DEFAULT_TIMEOUT_S", "criteria", "materialize", "parse_task", "read_layout"]

COLUMNS = (
    "task_id",
    "name",
    "category",
    "grading_type",
    "timeout_seconds",
    "prompt",
    "expected_behavior",
    "automated_checks",
    "llm_judge_rubric",
    "grading_criteria",
    "grading_weights",
    "multi_session",
    "sessions",
    "prerequisites",
    "workspace_files",
    "asset_paths",
    "assets_tar",
    "task_md",
)
DEFAULT_TIMEOUT_S = 120
_FRONT_MATTER = re.compile(r"^---\s*\n(.*?)\n---\s*\n(.*)$", re.DOTALL)
_SECTION = re.compile(r"^##\s+(.+)$")
_CRITERION = re.compile(r"^- \[[ x]\]\s+(.+)$")
#: A cell of a row that could not be read, with the reason; only broken rows have it.
BROKEN = "broken"
MAX_TASK_FILE = 4 * 1024 * 1024
MAX_ASSET = 32 * 1024 * 1024


def parse_task(text: str) -> dict[str, Any]:
    """The cells of a task file, but for its assets.

    Raises
    ------
    ValueError
        There is no front matter, or it is no YAML mapping.
    """
    import yaml

    found = _FRONT_MATTER.match(text.replace("\r\n", "\n").replace("\r", "\n"))
    if found is None:
        raise ValueError("there is no YAML front matter between two lines '---'")
    try:
        front = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        raise ValueError(f"the front matter is not YAML: {one_line(str(error))}") from None
    if not isinstance(front, dict):
        raise ValueError("the front matter is not a mapping")
    sections = _sections(found[2])
    files = front.get("workspace_files") or []
    sources = [
        e["source"] for e in files if isinstance(e, dict) and isinstance(e.get("source"), str)
    ]
    return {
        "task_id": front.get("id", ""),
        "name": front.get("name", ""),
        "category": front.get("category", ""),
        "grading_type": front.get("grading_type", "automated"),
        "timeout_seconds": front.get("timeout_seconds", DEFAULT_TIMEOUT_S),
        "prompt": sections.get("Prompt", ""),
        "expected_behavior": sections.get("Expected Behavior", ""),
        "automated_checks": sections.get("Automated Checks", ""),
        "llm_judge_rubric": sections.get("LLM Judge Rubric", ""),
        "grading_criteria": sections.get("Grading Criteria", ""),
        "grading_weights": _dump(front.get("grading_weights") or {}),
        "multi_session": bool(front.get("multi_session", False)),
        "sessions": _dump(front.get("sessions") or []),
        "prerequisites": _dump(front.get("prerequisites") or []),
        "workspace_files": _dump(files),
        "asset_paths": _dump(list(dict.fromkeys(sources))),
    }


def criteria(section: str) -> list[str]:
    """The items of a checklist: lines ``- [ ] text`` and ``- [x] text``."""
    found = (_CRITERION.match(line.strip()) for line in section.split("\n"))
    return [item[1].strip() for item in found if item is not None]


def _sections(body: str) -> dict[str, str]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in body.split("\n"):
        found = _SECTION.match(line)
        if found is not None:
            current = sections[found[1]] = []  # trailing blanks make another name
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in sections.items()}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# -- reading --------------------------------------------------------------------------------------


def read_layout(directory: Path) -> list[Mapping[str, Any]] | None:
    """The rows of a checkout, in its manifest's order, or ``None`` if it is no checkout.

    A task file that cannot be read is a broken row; the others are not touched.

    Raises
    ------
    DataError
        The manifest cannot be read.
    """
    tasks = directory / "tasks"
    files = {path.stem: path for path in sorted(tasks.glob("task_*.md"))}
    manifest = tasks / "manifest.yaml"
    order, categories = _read_manifest(manifest) if manifest.is_file() else ([], {})
    for name in order:
        if name not in files and (tasks / f"{name}.md").is_file():
            files[name] = tasks / f"{name}.md"
    if not files:
        return None
    names = dict.fromkeys([*order, *(name for name in files if name not in categories)])
    return [
        _read_task(files[name], directory / "assets", categories.get(name))
        if name in files
        else _broken(name, "", "the manifest names it, but there is no such file")
        for name in names
    ]


def _read_manifest(path: Path) -> tuple[list[str], dict[str, str | None]]:
    """Names of the tasks in order, and the category of each (``None`` in a flat list)."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = one_line(str(error))
        raise DataError(f"--bench-data: cannot read {str(path)!r}: {reason}") from None
    found = found if isinstance(found, dict) else {}
    categories: dict[str, str | None] = {}
    grouped = found.get("categories")
    for category, names in grouped.items() if isinstance(grouped, dict) else ():
        for name in names or ():
            categories.setdefault(str(name), str(category))
    for name in found.get("tasks") or ():
        categories.setdefault(str(name), None)
    first = [str(name) for name in found.get("run_first") or ()]
    return list(dict.fromkeys([*first, *categories])), categories


def _read_task(path: Path, assets: Path, category: str | None) -> Mapping[str, Any]:
    text = path.read_bytes()[:MAX_TASK_FILE].decode("utf-8", "surrogateescape")
    try:
        cells = parse_task(text)
        if category is not None:
            cells["category"] = category
        files = _find_assets(json.loads(cells["asset_paths"]), assets)
    except (ValueError, AssetError) as error:
        return _broken(path.stem, text, str(error))
    packed = {"asset_paths": _dump(sorted(files)), "assets_tar": pack(files) if files else ""}
    return {**cells, **packed, "task_md": text}


def _broken(name: str, text: str, reason: str) -> Mapping[str, Any]:
    blank = dict.fromkeys(COLUMNS, "")
    return {**blank, "task_id": name, "task_md": text, BROKEN: f"{name}.md: {reason}"}


def _find_assets(sources: Iterable[str], assets: Path) -> dict[str, bytes]:
    """The files that a task's sources name; a missing one is left for the task to tell."""
    files: dict[str, bytes] = {}
    for source in sources:
        name = safe_name(source)
        place = assets / name
        found = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else [place]
        for path in found:
            data = read_regular(path, MAX_ASSET + 1)
            if data is not None:
                if len(data) > MAX_ASSET:
                    raise AssetError(f"the asset {name!r} is larger than {MAX_ASSET >> 20} MiB")
                files[path.relative_to(assets).as_posix()] = data
    return files


# -- writing --------------------------------------------------------------------------------------


def materialize(rows: Iterable[Row | Mapping[str, Any]], directory: Path) -> None:
    """Write *rows* in upstream's layout: the task files and assets byte for byte, and a manifest.

    Raises
    ------
    AssetError
        An identifier or an archive would write outside *directory*.
    """
    cells = [row.cells if isinstance(row, Row) else row for row in rows]
    tasks = directory / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    for row in cells:
        name = safe_name(f"{row['task_id']}.md")
        if "/" in name:
            raise AssetError(f"the task id {row['task_id']!r} is no file name")
        (tasks / name).write_bytes(str(row["task_md"]).encode("utf-8", "surrogateescape"))
        for file in _assets(row).values():
            path = directory / "assets" / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
    (tasks / "manifest.yaml").write_text("\n".join(_manifest(cells)) + "\n", encoding="utf-8")


def _assets(row: Mapping[str, Any]) -> Mapping[str, SeedFile]:
    packed = row.get("assets_tar")
    return unpack(packed) if isinstance(packed, str) and packed.strip() else {}


def _manifest(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    order: list[str] = []
    categories: dict[str, list[str]] = {}
    for row in rows:
        order.append(str(row["task_id"]))
        categories.setdefault(str(row["category"] or "uncategorized"), []).append(order[-1])
    if order != [name for names in categories.values() for name in names]:
        yield "run_first:"
        yield from (f"  - {_scalar(name)}" for name in order)
        yield ""
    yield "categories:"
    for number, (category, names) in enumerate(categories.items()):
        if number:
            yield ""
        yield f"  {_scalar(category)}:"
        yield from (f"    - {_scalar(name)}" for name in names)


def _scalar(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", text) else json.dumps(text)
