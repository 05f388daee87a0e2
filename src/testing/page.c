#include "testing/page.h"

#include <stdlib.h>

#include "testing/test.h"

void mr_assert_page(const char *path, void (*print)(FILE *to))
{
    char *made = NULL;
    size_t made_size = 0;
    FILE *memory = open_memstream(&made, &made_size);
    print(memory);
    fclose(memory);
    char name[4096];
    snprintf(name, sizeof(name), "%s/%s", MR_SOURCE_DIR, path);
    FILE *page = fopen(name, "re");
    assert_non_null(page);
    char *kept = calloc(1, made_size + 2);
    size_t kept_size = fread(kept, 1, made_size + 1, page);
    fclose(page);
    assert_int_equal(kept_size, made_size);
    assert_memory_equal(kept, made, made_size);
    free(kept);
    free(made);
}
