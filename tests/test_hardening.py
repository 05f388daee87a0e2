"""What compiler and linker do for the binary's safety, read from the binary itself."""

import os
import re
import subprocess

import pytest

from kit import BINARY

pytestmark = pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ,
                                reason="a sanitizer's build is not what users run")

# Every unit of ours is compiled with these; GCC writes them into the debug information.
COMPILER_FLAGS = ["-O2", "-fPIE", "-fstack-protector-strong", "-fstack-clash-protection"]


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, BINARY], check=True, capture_output=True, text=True).stdout


def segments():
    """Type and flags of each program header."""
    return re.findall(r"^  (\w+) +0x\w+ 0x\w+ 0x\w+ 0x\w+ 0x\w+ ([R ][W ][E ])", readelf("-l"), re.M)


def test_position_independent_and_bound_at_start():
    assert re.search(r"Type:\s+DYN \(Position-Independent Executable", readelf("-h"))
    dynamic = readelf("-d")
    assert re.search(r"\(FLAGS\).*BIND_NOW", dynamic) and re.search(r"\(FLAGS_1\).*NOW.*PIE", dynamic)
    assert "GNU_RELRO" in dict(segments()), "no part becomes read-only after the start"
    assert "TEXTREL" not in dynamic, "code is relocated, so it is writable meanwhile"


def test_no_memory_is_writable_and_executable():
    found = segments()
    assert dict(found)["GNU_STACK"] == "RW "
    assert not [name for name, flags in found if "W" in flags and "E" in flags]


def test_no_search_path_of_its_own():
    assert not re.search(r"\((RPATH|RUNPATH)\)", readelf("-d"))


def test_build_id():
    assert re.search(r"Build ID: [0-9a-f]{40}", readelf("-n"))


def test_stack_protector_and_fortified_functions_are_used():
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols
    for name in ("snprintf", "vsnprintf", "fprintf"):
        if f" {name}@" in symbols:
            assert f"__{name}_chk" in symbols, f"{name} is called, but nowhere checked"
    assert re.search(r"__\w+_chk@GLIBC", symbols)


def text_section():
    place = re.search(r"\] \.text +PROGBITS +\w+ (\w+) (\w+)", readelf("-S"))
    with open(BINARY, "rb") as file:
        file.seek(int(place[1], 16))
        return file.read(int(place[2], 16))


def test_returns_are_guarded():
    """x86-64: the processor's shadow stack (CET) is used only where the linked program's note says so. Every unit also has
    the landing pads for jumps (the flag below), but Debian's own start files have none. aarch64: functions sign their
    return addresses (PACIASP, 0xd503233f) and check them (AUTIASP, 0xd50323bf); that needs no note, and the start files have
    none of these either."""
    if "X86-64" in readelf("-h"):
        assert re.search(r"x86 feature:.*SHSTK", readelf("-n")), readelf("-n")
    elif "AArch64" in readelf("-h"):
        words = memoryview(text_section()).cast("I").tolist()
        assert words.count(0xD503233F) > 1000 and words.count(0xD50323BF) > 1000
    else:
        pytest.skip("another processor")


def test_bounds_are_checked_where_their_size_is_known_at_run_time():
    """Level 3 of _FORTIFY_SOURCE, and the checks of libstdc++; both show as macros in the debug information's flags or
    as the functions that they call."""
    symbols = readelf("--dyn-syms")
    assert "__memcpy_chk" in symbols or "__snprintf_chk" in symbols
    with open(BINARY, "rb") as file:
        assert b"__glibcxx_assert_fail" in file.read() or "_ZSt21__glibcxx_assert_fail" in symbols


def test_every_unit_is_compiled_with_the_flags():
    """librdkafka's are compiled for a shared library, too: -fPIC allows no more than -fPIE."""
    producers = re.findall(r"DW_AT_producer\s*:.*?((?:GNU C|clang)[^\n]*)", readelf("--debug-dump=info"))
    ours = [text for text in producers if text.startswith("GNU C")]
    assert ours, "no debug information to read the flags from; is the build by GCC, and stripped?"
    wanted = list(COMPILER_FLAGS)
    if "X86-64" in readelf("-h"):
        wanted.append("-fcf-protection=full")
    if "AArch64" in readelf("-h"):
        wanted.append("-mbranch-protection=standard")
    for text in ours:
        missing = [flag for flag in wanted if flag not in text.replace("-fPIC", "-fPIE")]
        assert not missing, f"{missing} missing in: {text}"
