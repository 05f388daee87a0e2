"""The live page of a running millrace as a picture: a minute of a steady stream, every chart full.

    live_page.py ADDRESS PICTURE [flame]

With "flame" the flame graph of that minute."""

import os
import sys
import tempfile

from browser import open_browser
from kit import eventually

SECONDS = 58  # with more than a minute, the page shows two
WIDTH, HEIGHT = 1280, 740
DRAWN = "return Number(document.getElementById('flame').dataset.turn || 0)"


def full(browser):
    """A whole minute, the last seconds of it without a gap."""
    return browser.run("return rows.length") >= SECONDS and browser.run(
        "return rows.slice(-5).every((row) => row.flush_p99 !== null && row.changes_rate > 0)")


def main(address, picture, flame=None):
    with tempfile.TemporaryDirectory() as folder, open_browser(folder) as browser:
        browser.look(WIDTH, height=HEIGHT)
        browser.driver.get(f"http://{address}/")
        eventually(lambda: full(browser), 2 * SECONDS, "a minute of steady rows")
        if flame:
            drawn = browser.run(DRAWN)
            eventually(lambda: browser.run(DRAWN) > drawn, 30, "the minute's flame graph")
            section = browser.driver.find_element("css selector", "section:has(#flame)")
            assert section.screenshot(picture)
        assert browser.errors() == [] and (flame or browser.driver.save_screenshot(picture))
    assert os.path.getsize(picture) > 10000


if __name__ == "__main__":
    main(*sys.argv[1:])
