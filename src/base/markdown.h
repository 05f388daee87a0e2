/* Plain text, such as the words of an option, as Markdown. Any thread. */
#ifndef MR_BASE_MARKDOWN_H
#define MR_BASE_MARKDOWN_H

#include <stdio.h>

/* Signs that Markdown, or a table of it, would take for its own are escaped; a page that the text names (docs/types.md) becomes a link
 * from another page. */
void mr_markdown_print(const char *text, FILE *to);

#endif
