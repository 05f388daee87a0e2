"""The questions to PostgreSQL's catalog, asked one by one in seconds: src/postgres/catalog/describe_test.c against the stand's server. Needs
`unit-tests` of one build (cmake --build --preset dev --target unit-tests)."""

import os
import pathlib
import subprocess

from kit import dsn

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_every_question_of_the_catalog_module(database):
    beside = pathlib.Path(os.environ.get("MILLRACE_BIN", ROOT / "build/release/millrace")).parent / "unit-tests"
    built = [path for path in (beside, *sorted(ROOT.glob("build/*/unit-tests"))) if path.exists()]
    assert built, "no build has unit-tests"
    done = subprocess.run([built[0], "describe_test"], env={**os.environ, "MILLRACE_TEST_CONNINFO": dsn(database.name)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout
