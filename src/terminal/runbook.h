/* docs/runbook.md, which the program carries: a section for each exit code, alert and error that a
 * person meets. */
#pragma once

#include "base/base.h"

/* The page; a NUL follows it. */
mr_slice mr_runbook_md(void);

/* Markdown without its marks of code, weight and links. Frees `markdown`; the caller frees what it
 * returns. */
char *mr_plain(char *markdown);

/* The section of that name, which the caller frees; NULL: there is none. */
char *mr_runbook_section(const char *name);

/* The item of a section's list that begins with the word and a colon, without these, or (NULL) the
 * section's first paragraph; which the caller frees. NULL: there is none. */
char *mr_runbook_item(const char *section, const char *word);

/* The sections' names, one a line. */
void mr_runbook_print_names(FILE *to);

/* mr_log_see: the section with the longest "- seen as `…`" that `said` contains. Any thread. */
void mr_runbook_see(mr_slice said, char ret_see[MR_LOG_SEE_MAX]);

/* The section that is seen as what `text` has, or is a part of (five characters or more), which the
 * caller frees; NULL: none. */
char *mr_runbook_seen_as(const char *text);

/* The same of an error, as a line after `lead`; in the end its exit code has a section. */
void mr_runbook_print_see(FILE *to, const char *lead, const char *text, mr_status status);
