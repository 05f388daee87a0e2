#include "testing/page.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

/* What `print` prints; the caller frees it. */
static char *printed(void (*print)(FILE *to))
{
    char *made = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&made, &size);
    print(memory);
    fclose(memory);
    return made;
}

static char *page_at(const char *path)
{
    enum { PAGE_MAX = 1 << 20 };
    char name[4096];
    snprintf(name, sizeof(name), "%s/%s", MR_SOURCE_DIR, path);
    FILE *page = fopen(name, "re");
    assert_non_null(page);
    char *text = calloc(1, PAGE_MAX);
    assert_true(fread(text, 1, PAGE_MAX - 1, page) < PAGE_MAX - 1);
    fclose(page);
    return text;
}

void mr_assert_page(const char *path, void (*print)(FILE *to))
{
    char *made = printed(print);
    char *kept = page_at(path);
    assert_string_equal(kept, made);
    free(kept);
    free(made);
}

void mr_assert_page_has(const char *path, void (*print)(FILE *to))
{
    char *made = printed(print);
    char *kept = page_at(path);
    assert_non_null(strstr(kept, made));
    free(kept);
    free(made);
}
