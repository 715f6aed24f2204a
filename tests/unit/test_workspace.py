from __future__ import annotations

import os
from pathlib import Path

from pytest_agentbench.workspace import Workspace, keep, read_regular, remove_tree


def test_diff_names_what_changed() -> None:
    with Workspace() as workspace:
        root = workspace.path
        for name in ("same.txt", "changed.txt", "deleted.txt"):
            (root / name).write_text("before", encoding="ascii")
        workspace.seal()
        (root / "changed.txt").write_text("after", encoding="ascii")
        (root / "deleted.txt").unlink()
        (root / "sub").mkdir()
        (root / "sub" / "new.txt").write_text("new", encoding="ascii")

        diff = workspace.diff()

    assert (diff.created, diff.changed, diff.deleted) == (
        ("sub/new.txt",),
        ("changed.txt",),
        ("deleted.txt",),
    )
    assert not root.exists()


def test_links_pipes_and_big_files_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret", encoding="ascii")
    with Workspace() as workspace:
        workspace.seal()
        (workspace.path / "link").symlink_to(secret)
        (workspace.path / "loop").symlink_to(".")
        os.mkfifo(workspace.path / "pipe")
        (workspace.path / "good.txt").write_text("good", encoding="ascii")
        with (workspace.path / "sparse").open("wb") as file:
            file.truncate(1 << 40)
        diff = workspace.diff()

        left_out = keep(workspace.path, diff, tmp_path / "kept")

        assert read_regular(workspace.path / "link", 100) is None
        assert read_regular(workspace.path / "pipe", 100) is None
    kept = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert kept == {"good.txt": b"good"}
    assert {"link", "loop", "pipe", "sparse"} <= set(left_out)


def test_removal_does_not_stop_at_modes() -> None:
    workspace = Workspace()
    locked = workspace.path / "locked"
    locked.mkdir()
    (locked / "file").write_text("x", encoding="ascii")
    locked.chmod(0)

    workspace.remove()

    assert not workspace.path.exists()


def test_modes_do_not_keep_a_directory(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/c/file").touch()
    for path in (top / "a/b/c", top / "a/b", top / "a", top):
        path.chmod(0)

    remove_tree(top)

    assert not top.exists()


def test_names_that_are_not_utf8_can_be_reported() -> None:
    with Workspace() as workspace:
        workspace.seal()
        (Path(os.fsdecode(os.fsencode(workspace.path) + b"/bad\xff"))).write_bytes(b"x")

        assert workspace.diff().created == (os.fsdecode(b"bad\xff"),)
