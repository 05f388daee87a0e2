"""What the includes do not show of millrace's objects: python symbols.py BUILD FOLDER=ALLOWED...

BUILD is a build's folder, FOLDER=ALLOWED names a folder of src and those that it may include, with spaces between them. Prints
a line for each symbol that a shared library defines, too, because it would take that library's place in the whole process, and for each
call of a folder to one above it, which neither it nor what it includes may include. Exit status 1: there are some."""

import collections
import pathlib
import re
import subprocess
import sys


def nm(arguments, files):
    """(file, kind, symbol) of each line."""
    lines = subprocess.run(["nm", "--print-file-name", *arguments, *map(str, files)], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False).stdout.splitlines()
    for line in lines:
        file, rest = line.split(":", 1)
        kind, symbol = rest.split()[-2:]
        yield file, kind, symbol.split("@")[0]


def objects(build):
    """Of sources that are still there, by the object's name: the source's path under src."""
    found = {}
    for path in (build / "CMakeFiles").glob("mr_*.dir/src/**/*.o"):
        source = pathlib.Path("src", str(path).split("/src/", 1)[1].removesuffix(".o"))
        if source.exists():
            found[str(path)] = source.relative_to("src")
    return found


def libraries(build):
    text = subprocess.run(["ldd", build / "millrace"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"=> (/\S+)", text)


def closure(direct):
    """Each folder, and all that it knows by way of others."""
    known = {folder: {folder, *names} for folder, names in direct.items()}
    while True:
        more = {folder: names.union(*(known.get(name, set()) for name in names)) for folder, names in known.items()}
        if more == known:
            return known
        known = more


def main():
    build = pathlib.Path(sys.argv[1])
    allowed = closure({folder: names.split() for folder, names in (entry.split("=", 1) for entry in sys.argv[2:])})
    sources = objects(build)
    defined, used = {}, collections.defaultdict(set)
    for file, kind, symbol in nm(["--extern-only"], sources):
        if kind == "U":
            used[symbol].add(sources[file])
        elif kind not in "wvWV":
            defined[symbol] = sources[file]
    wrong = []
    for file, _, symbol in nm(["--dynamic", "--defined-only"], libraries(build)):
        if symbol in defined:
            wrong.append(f"src/{defined[symbol]} defines {symbol}, which {pathlib.Path(file).name} defines, too")
    for symbol, source in defined.items():
        for user in used[symbol]:
            folder, other = str(user.parent), str(source.parent)
            if folder in allowed and other not in allowed[folder]:
                wrong.append(f"src/{user} calls {symbol} of src/{source}, which stands above src/{folder}")
    if not defined:
        wrong.append(f"{build} holds no objects")
    print(*sorted(set(wrong)), sep="\n", end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
