"""The pictures of the documents: each is what its text makes, is shown by a page, and says there what it shows."""

import glob
import os
import re
import subprocess
import xml.etree.ElementTree

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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


@pytest.mark.parametrize("source", SOURCES, ids=os.path.basename)
def test_picture_is_shown_and_described(source):
    """A page has it, with a text for those who do not see it."""
    name = os.path.basename(source).removesuffix(".dot") + ".svg"
    shown = []
    for page in [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]:
        with open(page, encoding="utf-8") as file:
            shown += re.findall(r"!\[([^\]]*)\]\([^)]*images/" + re.escape(name) + r"\)", file.read())
    assert shown and all(len(text.split()) >= 6 for text in shown), f"{name}: {shown}"
