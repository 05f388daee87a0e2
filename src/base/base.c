#include "base/base.h"

#include <stdatomic.h>

#include "base/log_writer.h"

static _Atomic uint64_t alloc_count;
static _Thread_local bool left_out;

static void count_one(void)
{
    if (!left_out) {
        atomic_fetch_add_explicit(&alloc_count, 1, memory_order_relaxed);
    }
}

mr_slice mr_slice_of(const char *text)
{
    return (mr_slice){.data = (const uint8_t *)text, .len = strlen(text)};
}

bool mr_next_word(const char **words, mr_slice *ret)
{
    size_t len = strcspn(*words, "|");
    bool is_there = **words != '\0';
    *ret = (mr_slice){.data = (const uint8_t *)*words, .len = len};
    *words += len + ((*words)[len] == '|');
    return is_there;
}

bool mr_is_among(const char *words, mr_slice text)
{
    mr_slice word;
    bool found = false;
    while (!found && mr_next_word(&words, &word)) {
        bool is_prefix = word.len > 0 && word.data[word.len - 1] == '*';
        size_t len = word.len - is_prefix;
        found = (is_prefix ? text.len >= len : text.len == len) &&
                memcmp(text.data, word.data, len) == 0;
    }
    return found;
}

int mr_u32_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int mr_u64_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* After what was logged before, and without waiting for a reader that has stopped. */
void mr_give_up(const char *form, ...)
{
    char line[512], text[480];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(text, sizeof(text), form, arguments);
    va_end(arguments);
    int len = snprintf(line, sizeof(line), "millrace: %s\n", text);
    mr_log_stop();
    mr_log_emit(line, (size_t)len);
    abort();
}

void mr_assert_failed(const char *condition, const char *file, int line)
{
    mr_give_up("invariant broken at %s:%d: %s", file, line, condition);
}

static void *alloc_checked(void *memory, size_t size, const char *file, int line)
{
    if (memory == NULL) {
        mr_give_up("out of memory: %zu bytes at %s:%d", size, file, line);
    }
    return memory;
}

void *mr_alloc(size_t size, const char *file, int line)
{
    count_one();
    return alloc_checked(calloc(1, size == 0 ? 1 : size), size, file, line);
}

void *mr_realloc(void *old, size_t size, const char *file, int line)
{
    count_one();
    return alloc_checked(realloc(old, size == 0 ? 1 : size), size, file, line);
}

void *mr_grow(void *array, uint32_t *room, size_t need, size_t element, const char *file, int line)
{
    enum { FEWEST = 16 };
    if (need <= *room) {
        return array;
    }
    MR_ASSERT(need <= UINT32_MAX / 2);
    *room = need > FEWEST / 2 ? 2 * (uint32_t)need : FEWEST;
    return mr_realloc(array, *room * element, file, line);
}

char *mr_strndup(const char *text, size_t len, const char *file, int line)
{
    char *copy = mr_alloc(len + 1, file, line);
    memcpy(copy, text, len);
    return copy;
}

void mr_free_all(void *pointers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *one;
        memcpy(&one, (const char *)pointers + i * sizeof(one), sizeof(one));
        free(one);
    }
    free(pointers);
}

void mr_alloc_leave_out(void)
{
    left_out = true;
}

uint64_t mr_alloc_count(void)
{
    return atomic_load_explicit(&alloc_count, memory_order_relaxed);
}
