/* Pages of docs/ that a program prints: the committed one is the printed one. */
#ifndef MR_TESTING_PAGE_H
#define MR_TESTING_PAGE_H

#include <stdio.h>

/* Fails the test unless the file at `path` (from the source folder, "docs/…") holds exactly what
 * `print` writes. */
void mr_assert_page(const char *path, void (*print)(FILE *to));

/* The page has what `print` prints somewhere. */
void mr_assert_page_has(const char *path, void (*print)(FILE *to));

#endif
