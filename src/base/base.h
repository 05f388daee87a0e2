/* The few things every file may use: what most need of libc, attributes, slices, array and
 * assertion helpers, and, at the end, status, log and text.
 *
 * No other file of this project may be included above this one. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MR_PRINTF(format_index, first_arg)                                                         \
    __attribute__((format(printf, (format_index), (first_arg))))
#define MR_MUST_USE            __attribute__((warn_unused_result))
#define MR_LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define MR_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define MR_ARRAY_LEN(array)    (sizeof(array) / sizeof((array)[0]))
#define MR_JOIN(a, b)          MR_JOIN_(a, b)
#define MR_JOIN_(a, b)         a##b

#ifdef __cplusplus
extern "C" {
#endif

/* Some bytes that somebody else owns. `data` may be NULL when `len` is 0. */
typedef struct mr_slice {
    const uint8_t *data;
    size_t len;
} mr_slice;

/* A string literal as a slice, without its terminating NUL. */
#define MR_SLICE(literal)                                                                          \
    ((mr_slice){.data = (const uint8_t *)(literal), .len = sizeof(literal) - 1})

/* What "%.*s" takes of a slice. */
#define MR_SLICE_ARGS(slice) (int)(slice).len, (const char *)(slice).data

/* A C string as a slice, without its terminating NUL. */
mr_slice mr_slice_of(const char *text);

/* True when both hold the same bytes. */
static inline bool mr_slice_equal(mr_slice a, mr_slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Takes the first word off "a|b|c"; false: there is none left. */
bool mr_next_word(const char **words, mr_slice *ret);

/* Whether a text is one of "a|b*"; a star stands for any rest. */
bool mr_is_among(const char *words, mr_slice text);

/* For qsort and bsearch: numbers of 32 bits, or structures that begin with one, by it. */
int mr_u32_compare(const void *a, const void *b);
int mr_u64_compare(const void *a, const void *b); /* likewise, of 64 bits */

typedef int mr_compare_fn(const void *a, const void *b);

/* qsort and bsearch, which take no null, not even for nothing. */
static inline void mr_sort(void *items, size_t count, size_t size, mr_compare_fn *compare)
{
    if (count > 0) {
        qsort(items, count, size, compare);
    }
}

static inline void *mr_search(const void *key, const void *items, size_t count, size_t size,
                              mr_compare_fn *compare)
{
    return count == 0 ? NULL : bsearch(key, items, count, size, compare);
}

/* The first of so many items for which the condition holds, which calls its address `one`; NULL:
 * there is none. Whether one is such, and whether all are. */
#define MR_FIND(one, items, count, condition)                                                      \
    __extension__({                                                                                \
        __typeof__((items) + 0) found_ = NULL;                                                     \
        for (size_t i_ = 0, end_ = (size_t)(count); found_ == NULL && i_ < end_; i_++) {           \
            __typeof__((items) + 0) one = &(items)[i_];                                            \
            found_ = (condition) ? one : NULL;                                                     \
        }                                                                                          \
        found_;                                                                                    \
    })
#define MR_ANY(one, items, count, condition) (MR_FIND(one, items, count, condition) != NULL)
#define MR_ALL(one, items, count, condition) (!MR_ANY(one, items, count, !(condition)))

/* Ends the process after one line on stderr, "millrace: " and the text. For what no caller can
 * answer and nobody may miss; the slot replays. */
void mr_give_up(const char *form, ...) __attribute__((noreturn)) MR_PRINTF(1, 2);

/* Likewise, for bugs of ours, never for what the world does. */
void mr_assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/* On in every build: a broken invariant must not go on to confirm a position. */
#define MR_ASSERT(condition)                                                                       \
    do {                                                                                           \
        if (MR_UNLIKELY(!(condition))) {                                                           \
            mr_assert_failed(#condition, __FILE__, __LINE__);                                      \
        }                                                                                          \
    } while (0)

/* malloc and friends that never return NULL: they say size and place and abort, and the slot
 * replays what was in memory. For start-up and per-relation work, never for a row. */
void *mr_alloc(size_t size, const char *file, int line) __attribute__((returns_nonnull));
void *mr_realloc(void *old, size_t size, const char *file, int line)
    __attribute__((returns_nonnull));
void *mr_grow(void *array, uint32_t *room, size_t need, size_t element, const char *file, int line);
char *mr_strndup(const char *text, size_t len, const char *file, int line)
    __attribute__((returns_nonnull));

#define MR_ALLOC(size)            mr_alloc((size), __FILE__, __LINE__)
#define MR_NEW(type)              ((type *)mr_alloc(sizeof(type), __FILE__, __LINE__))
#define MR_NEW_ARRAY(type, count) ((type *)mr_alloc(sizeof(type) * (count), __FILE__, __LINE__))
#define MR_REALLOC(old, size)     mr_realloc((old), (size), __FILE__, __LINE__)
/* Makes room in an array for `need` elements; what grows at least doubles. `room` is its size in
 * elements, an uint32_t. */
#define MR_GROW(array, room, need)                                                                 \
    ((array) = mr_grow((array), &(room), (need), sizeof(*(array)), __FILE__, __LINE__))
#define MR_STRDUP(text)       mr_strndup((text), strlen(text), __FILE__, __LINE__)
#define MR_STRNDUP(text, len) mr_strndup((text), (len), __FILE__, __LINE__)

/* Frees what so many pointers point to, and the array of them. */
void mr_free_all(void *pointers, size_t count);

/* Of a pointer to memory that is freed at the end of its block, however that is left: MR_FREED char
 * *text = MR_STRDUP("a"); */
#define MR_FREED __attribute__((cleanup(mr_free_at)))
static inline void mr_free_at(void *at)
{
    free(*(void **)at);
}

/* How often our own code asked for memory since the start, on all threads but those that left
 * themselves out. The drain benchmark reads it to show that a row costs none. */
uint64_t mr_alloc_count(void);

/* The calling thread only looks on (metrics, HTTP): what it asks for is not counted from now on. */
void mr_alloc_leave_out(void);

#ifdef __cplusplus
}
#endif

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
