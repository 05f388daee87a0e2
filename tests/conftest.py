import functools

import pytest

from kit import Database, Millrace, Topic


@pytest.fixture
def database():
    database = Database()
    yield database
    database.drop()


@pytest.fixture
def millrace_for(tmp_path):
    """Makes millrace processes for a database and ends them afterwards."""
    made = []

    def make(database, tables=("t",), text="", **options):
        made.append(Millrace(database, tmp_path, tables, text, **options))
        return made[-1]

    yield make
    for process in made:
        if process.process is not None and process.process.poll() is None:
            process.kill()
        print("".join(process.lines[-200:]))  # shown when the test failed


@pytest.fixture
def millrace(database, millrace_for):
    """Makes millrace processes for the test's database."""
    return functools.partial(millrace_for, database)


@pytest.fixture
def topic():
    """Opens topic readers and closes them afterwards."""
    opened = []

    def open_topic(name):
        opened.append(Topic(name))
        return opened[-1]

    yield open_topic
    for reader in opened:
        reader.close()
