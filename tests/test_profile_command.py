"""`millrace profile`: what it fetches, draws, compares and shows, and what it says when it can't."""

import os
import re
import xml.etree.ElementTree

from kit import eventually, profile_command
from pprof_file import Profile


def is_svg(path):
    return xml.etree.ElementTree.fromstring(path.read_bytes()).tag.endswith("svg")


def test_profile_command_fetches_draws_and_compares(database, profiled, tmp_path):
    process = profiled(endpoints="true")
    taken = []
    for name in ("before", "after.svg"):
        database.run("INSERT INTO t (name) SELECT 'name ' || g FROM generate_series(1, 20000) g")
        taken.append(profile_command("--address", process.address(), "--seconds", "2", "--frequency", "300",
                                     "--out", name, folder=tmp_path))
    database.run("INSERT INTO t (name) SELECT 'name ' || g FROM generate_series(1, 20000) g")
    pprof = profile_command("--address", process.address(), "--seconds", "2", "--out", "taken.pb.gz", folder=tmp_path)
    for result in taken:
        assert result.returncode == 0, result.stderr
        assert re.search(r"^flush +[0-9.]+%$", result.stdout, re.M)
    assert "wrote ./after.folded" in taken[1].stdout
    assert pprof.stdout == "wrote ./taken.pb.gz\n", pprof.stderr
    assert Profile((tmp_path / "taken.pb.gz").read_bytes()).total(1) > 0
    assert is_svg(tmp_path / "before.svg") and is_svg(tmp_path / "after.svg")

    diff = profile_command("--diff", "before.folded", "after.folded", "--out", "changes", folder=tmp_path)
    assert diff.returncode == 0, diff.stderr
    assert re.search(r"^encode +[0-9.]+% +[0-9.]+% +[-+][0-9.]+$", diff.stdout, re.M)
    assert "change" in (tmp_path / "changes.svg").read_text()


def test_profile_command_compares_folded_text(tmp_path):
    (tmp_path / "a").write_text("mr-source;mr_pgoutput_decode 75\nmr-source;mr_encode_change 25\n")
    (tmp_path / "b").write_text("mr-source;mr_pgoutput_decode 50\nmr-source;mr_encode_change 50\n")
    result = profile_command("--diff", "a", "b", "-o", str(tmp_path / "d"), folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^encode +25.00% +50.00% +\+25.00$", result.stdout, re.M)
    assert is_svg(tmp_path / "d.svg")


def test_profile_command_shows_the_picture_where_there_is_a_display(tmp_path):
    (tmp_path / "a").write_text("x;y 1\n")
    viewer = tmp_path / "xdg-open"
    viewer.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/shown"\n')
    viewer.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert profile_command("--diff", "a", "a", "-o", "none", folder=tmp_path, environment=path).returncode == 0
    shown = profile_command("--diff", "a", "a", "-o", "some", folder=tmp_path, environment={**path, "DISPLAY": ":7"})
    assert shown.returncode == 0
    assert eventually(lambda: (tmp_path / "shown").read_text(), 30, "the viewer", OSError) == "./some.svg\n"


def test_profile_command_says_what_is_wrong(profiled, tmp_path):
    process = profiled()
    address = process.address()

    def wrong(*arguments):
        result = profile_command(*arguments, folder=tmp_path)
        assert result.returncode != 0 and not list(tmp_path.glob("*.svg"))
        return result.stderr

    assert "endpoints = true" in wrong("--address", address)
    assert "is millrace running" in wrong("--address", "127.0.0.1:1")
    assert "--seconds wants" in wrong("--seconds", "0")
    assert "two files" in wrong("--diff", "a")
    assert "No such file" in wrong("--diff", "a", "b")
    (tmp_path / "a").write_text("nothing of the kind\n")
    assert "no folded stacks" in wrong("--diff", "a", "a")
    (tmp_path / "a").write_bytes(b"\x1f\x8b\0 nothing")
    assert "-diff_base" in wrong("--diff", "a", "a")
