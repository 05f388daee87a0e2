"""A headless Chromium that asks nobody but the pages it is sent to."""

import base64
import contextlib
import shutil

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-dev-shm-usage", "--hide-scrollbars")


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

    def errors(self):
        """What the console said since the last call, above the level of information."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path):
        """The whole page, however long."""
        self.run("document.activeElement.blur(); scrollTo(0, 0)")
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))


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
