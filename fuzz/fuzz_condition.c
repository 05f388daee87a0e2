/* A condition: taken or refused; taken between parentheses, with more behind it, or twice, it is
 * still one; cut anywhere, no bytes beyond it are read. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "postgres/conn/condition.h"

static bool is_taken(const char *before, const char *condition, const char *after)
{
    MR_TEXT(text);
    mr_text_string(&text, before);
    mr_text_string(&text, condition);
    mr_text_string(&text, after);
    return mr_sql_condition_fault(text.data) == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *condition = malloc(size + 1);
    MR_ASSERT(condition != NULL);
    memcpy(condition, data, size);
    condition[size] = '\0';
    size_t len = strlen(condition);
    if (len > 0 && mr_sql_condition_fault(condition) == NULL) {
        MR_TEXT(sql);
        mr_sql_add_condition(&sql, condition);
        bool is_deep = sql.len > 512; /* one more might be too many */
        MR_ASSERT(is_deep || mr_sql_condition_fault(sql.data) == NULL);
        /* What is behind it is outside of it: a text, a parenthesis too many, one that is not
         * closed. */
        MR_ASSERT(is_deep || is_taken("(", condition, "\n) AND ')' = ')'"));
        MR_ASSERT(!is_taken("", condition, "\n)"));
        MR_ASSERT(!is_taken("(", condition, "\n) AND '"));
        MR_ASSERT(!is_taken("(", condition, "\n"));
    }
    free(condition);
    return 0;
}
