"""A headless Chromium that asks nobody but the pages it is sent to."""

import base64
import contextlib
import shutil

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-unsafe-swiftshader")

COUNT_COLOURS = """
const [shot, done] = arguments;
const image = new Image();
image.onerror = () => done(0);
image.onload = () => {
  const at = new OffscreenCanvas(image.width, image.height).getContext('2d');
  at.drawImage(image, 0, 0);
  const bytes = at.getImageData(0, 0, image.width, image.height).data;
  const pixels = new Map();
  for (let i = 0; i < bytes.length; i += 4) {
    const [red, green, blue] = [bytes[i], bytes[i + 1], bytes[i + 2]];
    if (Math.max(red, green, blue) - Math.min(red, green, blue) <= 15) continue;
    const colour = red << 16 | green << 8 | blue;
    pixels.set(colour, (pixels.get(colour) || 0) + 1);
  }
  done([...pixels.values()].filter((count) => count >= 100).length);
};
image.src = 'data:image/png;base64,' + shot;
"""


def installed(*names):
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"{names[0]} is missing; scripts/setup.sh installs it"
    return found


class Browser:
    def __init__(self, driver):
        self.driver = driver
        self.run = driver.execute_script

    def look(self, width, height=900, scheme="light"):
        """The size of the window and what the system prefers."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def log_in(self, user):
        """With "name:password" from now on; a page whose address holds them can't fetch anything."""
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {
            "Authorization": "Basic " + base64.b64encode(user.encode()).decode()}})

    def errors(self):
        """What the console said since the last call, above the level of information."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path):
        """The whole page, however long."""
        self.run("document.activeElement.blur(); scrollTo(0, 0)")
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))


    def colours(self):
        """How many colours, greys apart, the window shows on a hundred pixels or more."""
        return self.driver.execute_async_script(COUNT_COLOURS, self.driver.get_screenshot_as_base64())


@contextlib.contextmanager
def open_browser(folder):
    options = Options()
    options.binary_location = installed("chromium", "chromium-browser")
    for argument in (*ARGUMENTS, f"--user-data-dir={folder}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(installed("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
