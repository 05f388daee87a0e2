"""What MkDocs does not do itself: the version, and links out of docs/, which lead to the repository."""

import os
import re

OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config):
    with open(os.path.join(os.path.dirname(config.config_file_path), "CMakeLists.txt"), encoding="utf-8") as file:
        config.copyright = "millrace " + re.search(r"^project\(millrace VERSION (\S+)", file.read(), re.MULTILINE)[1]
    if "GITHUB_REPOSITORY" in os.environ:
        config.extra["repository"] = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    return config


def on_page_markdown(markdown, page, config, files):  # pylint: disable=unused-argument
    repository = f"{config.extra['repository']}/blob/main/"
    return "".join(part if at % 2 else OUTSIDE.sub(lambda found: f"]({repository}{found[1]})", part)
                   for at, part in enumerate(FENCE.split(markdown)))
