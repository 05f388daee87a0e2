"""The pictures of the documents: each is what its text makes, or of a real run, is shown by a page, and says there what it shows."""

import glob
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts", "pictures"))
import dashboard  # pylint: disable=wrong-import-position
import prune  # pylint: disable=wrong-import-position
import screen  # pylint: disable=wrong-import-position

IMAGES = os.path.join(ROOT, "docs", "images")
SOURCES = sorted(glob.glob(os.path.join(IMAGES, "*.dot")))
SVG = "{http://www.w3.org/2000/svg}"



def content(path):
    """What a picture says, and what leads where: not where Graphviz, whose versions differ, puts it."""
    root = xml.etree.ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter(f"{SVG}text")]
    drawn = [(element.get("class"), element.find(f"{SVG}title").text) for element in root.iter(f"{SVG}g")]
    return root.find(f"{SVG}style").text, sorted(texts), sorted(drawn)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    done = subprocess.run([os.path.join(ROOT, "scripts", "pictures.sh"), folder], capture_output=True, text=True, timeout=60,
                          check=True)
    assert done.stderr == ""  # Graphviz warns where a text does not fit its box
    return folder


@pytest.mark.parametrize("source", SOURCES, ids=os.path.basename)
def test_picture_is_what_its_text_makes(source, made):
    name = os.path.basename(source).removesuffix(".dot") + ".svg"
    committed, now = content(os.path.join(IMAGES, name)), content(made / name)
    assert len(committed[2]) > 5 and committed == now, "run scripts/pictures.sh"


def test_a_changed_text_and_a_lost_arrow_are_found(made):
    path = made / "overview.svg"
    text = path.read_text(encoding="utf-8")
    for wrong in (text.replace("confirmed", "sent"), re.sub(r"(?s)<g id=\"edge1\".*?</g>", "", text, count=1)):
        (made / "wrong.svg").write_text(wrong, encoding="utf-8")
        assert wrong != text and content(made / "wrong.svg") != content(path)


def luminance(colour):
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_letters_are_legible_on_every_colour():
    """WCAG's contrast of 4.5, of each colour of letters with each ground, light and dark."""
    with open(os.path.join(IMAGES, "pictures.css"), encoding="utf-8") as file:
        for scheme in file.read().split("@media"):
            letters = re.findall(r"text \{[^}]*fill: (#\w{6})", scheme)
            grounds = re.findall(r"^ *\.(?:card|(?!edge|back)\w+ path).*fill: (#\w{6})", scheme, re.MULTILINE)
            assert len(letters) == 2 and len(grounds) >= 8
            for letter in letters:
                for ground in grounds:
                    low, high = sorted(map(luminance, (letter, ground)))
                    assert (high + 0.05) / (low + 0.05) >= 4.5, f"{letter} on {ground}"


PICTURES = sorted(glob.glob(os.path.join(IMAGES, "*.svg")) + glob.glob(os.path.join(IMAGES, "*.png")))
SIZE_MAX = 150 * 1024


@pytest.mark.parametrize("path", PICTURES, ids=os.path.basename)
def test_picture_is_small_shown_and_described(path):
    """A page has it, with a text for those who do not see it."""
    assert os.path.getsize(path) < SIZE_MAX
    name, shown = os.path.basename(path), []
    for page in [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]:
        with open(page, encoding="utf-8") as file:
            shown += re.findall(r"!\[([^\]]*)\]\([^)]*images/" + re.escape(name) + r"\)", file.read())
    assert shown and all(len(text.split()) >= 6 for text in shown), f"{name}: {shown}"


@pytest.mark.parametrize("path", [path for path in PICTURES if path.endswith(".svg")], ids=os.path.basename)
def test_picture_has_two_schemes(path):
    """And no script of a page around it is needed: it is one file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert re.search(r"prefers-color-scheme: ?dark", text) and not re.search(r"(?:href|src)=\"(?!#)|url\((?!#)", text)


# ---- of real runs: what draws them ----

def test_the_panels_are_the_dashboards():
    """Each query is one of grafana/dashboards/burst.json, with no variable left in it."""
    asked = [query for _, _, queries in dashboard.panels() for _, query in queries]
    assert len(asked) >= 6 and not any("$" in query for query in asked)


def test_a_line_lies_where_its_values_are():
    svg = dashboard.draw("a & b", (20, 5, 10), [("Lag", "s", [("<age>", [(0, 0), (10, 0.5), (20, 0)]), ("none", [])])])
    lines = [element.get("d") for element in xml.etree.ElementTree.fromstring(svg).iter(f"{SVG}path") if "L" in element.get("d")]
    (x0, low), (x1, high), (x2, end) = (map(float, point.split()) for point in lines[0][1:].split("L"))
    assert len(lines) == 1 and x1 - x0 == pytest.approx(x2 - x1) and low == end > high
    assert "a &amp; b" in svg and "&lt;age&gt; up to 500 ms" in svg and "nan" not in svg
    assert [dashboard.worded(value, unit) for value, unit in ((1500, "cps"), (2.5, "s"), (0.0015, "s"))] == ["1,500/s", "2.5 s", "1.5 ms"]


def test_a_screen_shows_what_was_said():
    svg = screen.draw("t", [("a < b", ["x " * 80, "different & so on"])], {"bad": ("different",)})
    rows = ["".join(element.itertext()) for element in xml.etree.ElementTree.fromstring(svg).iter(f"{SVG}text")][1:]
    assert rows[0] == "$ a < b" and rows[-1] == "different & so on" and '<tspan class="bad">different' in svg
    assert all(len(row) <= screen.COLUMNS for row in rows) and " ".join(rows[1:-1]).split() == ["x"] * 80


def test_what_is_narrow_is_pruned_and_nothing_lost(tmp_path):
    (tmp_path / "a").write_text("t;f;wide 900\nt;f;narrow 1\nt;g;read [kernel];deep [kernel] 99\nother;f 50\n")
    (tmp_path / "b").write_text("t;f;new 500\nt;f 500\n")
    prune.main("t", tmp_path / "a", tmp_path / "b", tmp_path)
    assert (tmp_path / "before.folded").read_text() == "t;f 1\nt;f;wide 900\nt;g;read [kernel] 99\n"
    assert (tmp_path / "after.folded").read_text() == "t;f 500\nt;f;new 500\n"
