/* Plain text, such as the words of an option, as Markdown. Any thread. */
#pragma once

#include "base/base.h"

/* Signs that Markdown would take for its own are escaped; a page that the text names
 * (docs/types.md) becomes a link. */
void mr_markdown_print(const char *text, FILE *to);
