"""What MkDocs does not do itself: the version, and links out of docs/ or into docs/dev/, which lead to the repository."""

import os
import re

OUTSIDE = re.compile(r"\]\((?:\.\./|(?=dev/))([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def read(config, name):
    with open(os.path.join(os.path.dirname(config.config_file_path), name), encoding="utf-8") as file:
        return file.read()


def on_config(config):
    config.copyright = "millrace " + re.search(r"^project\(millrace VERSION (\S+)", read(config, "CMakeLists.txt"), re.MULTILINE)[1]
    if "GITHUB_REPOSITORY" in os.environ:
        config.extra["repository"] = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    return config


# Pages that name everything once: a question in words of its own is answered elsewhere, a name is found there alone.
REFERENCE = ("configuration.md", "debezium-options.md", "log-events.md")


def on_page_markdown(markdown, page, config, files):  # pylint: disable=unused-argument
    if page.file.src_uri in REFERENCE:
        page.meta["search"] = {"boost": 0.5}
    repository = f"{config.extra['repository']}/blob/main/"

    def outside(found):
        return f"]({repository}{'docs/' * found[1].startswith('dev/')}{found[1]})"
    return "".join(part if at % 2 else OUTSIDE.sub(outside, part)
                   for at, part in enumerate(FENCE.split(markdown)))
