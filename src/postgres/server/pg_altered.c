#include "postgres/server/pg_altered.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/thread.h"

struct altered {
    char *name; /* "schema.table"; NULL: taken */
    uint32_t oid;
};

static pthread_mutex_t altered_lock = PTHREAD_MUTEX_INITIALIZER;
static struct altered *altered;
static uint32_t altered_count, altered_room;

void mr_pg_altered_note(const char *schema, const char *table, uint32_t oid)
{
    struct mr_text name = {0};
    mr_text_format(&name, "%s.%s", schema, table);
    MR_HOLD(&altered_lock);
    MR_GROW(altered, altered_room, (size_t)altered_count + 1);
    altered[altered_count++] = (struct altered){.name = name.data, .oid = oid};
}

void mr_pg_altered_forget(void)
{
    MR_HOLD(&altered_lock);
    for (uint32_t i = 0; i < altered_count; i++) {
        free(altered[i].name);
    }
    free(altered);
    altered = NULL;
    altered_count = altered_room = 0;
}

uint32_t mr_pg_altered_take(const char *schema, const char *table)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", schema, table);
    MR_HOLD(&altered_lock);
    for (uint32_t i = 0; i < altered_count; i++) {
        if (altered[i].name != NULL && strcmp(altered[i].name, name.data) == 0) {
            free(altered[i].name);
            altered[i].name = NULL;
            return altered[i].oid;
        }
    }
    return 0;
}
