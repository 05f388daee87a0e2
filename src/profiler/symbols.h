/* Addresses of this process to stacks and names, by libdw. A location is an address that was seen,
 * numbered from 1; it is named once, later, because reading debug information takes a while.
 * Everything lives until the process ends. All functions but mr_symbols_lock want the lock. */
#pragma once

#include "base/base.h"
#include "profiler/sampler.h"

enum { MR_STACK_FRAMES_MAX = 256 };

void mr_symbols_lock(void);
void mr_symbols_unlock(void);

/* A text as a number that is the same for the same text; 0 is "". */
uint32_t mr_symbols_intern(const char *text);
const char *mr_symbols_text(uint32_t id);

struct mr_stack {
    uint32_t locations[MR_STACK_FRAMES_MAX]; /* innermost first */
    uint32_t count;
    bool rooted; /* reaches the thread's entry function */
};

/* Follows a sample's stack to its root. */
void mr_symbols_unwind(const struct mr_sample *sample, struct mr_stack *ret);

/* The location of an address; `is_return`: it follows a call, and the call is meant. */
uint32_t mr_symbols_location(uint64_t address, bool is_return);

/* A location that is only a name: "[unsampled]". */
uint32_t mr_symbols_pseudo(const char *name);

/* One place in the source; a location has several where functions were inlined, innermost first. */
struct mr_frame {
    uint32_t function; /* texts; 0: not known */
    uint32_t file;
    uint32_t line;
};

struct mr_location {
    uint64_t address;
    uint32_t mapping; /* number from 1; 0: in no object */
    bool named;       /* whether that was tried */
    uint32_t frame_count;
    struct mr_frame *frames;
};

/* Names at most `limit` of the locations that are not named yet; false when none is left. */
bool mr_symbols_name_some(uint32_t limit);

/* The location, named if it was not. */
const struct mr_location *mr_symbols_get(uint32_t location);

struct mr_mapping {
    uint64_t start, end;
    uint64_t code_start, code_end; /* of its code, which begins `code_offset` bytes into the file */
    uint64_t code_offset;
    uint32_t file; /* texts */
    uint32_t build_id;
    bool has_lines;
};
const struct mr_mapping *mr_symbols_mapping(uint32_t mapping);

/* The mapping of the program itself; 0: not known. */
uint32_t mr_symbols_program(void);

/* The file name of the object that holds the location, "librdkafka.so.1". */
const char *mr_symbols_object(const struct mr_location *location);

/* The object that holds the address (libdwfl's), or NULL. Finds the objects of this process at the
 * first call. objects.c. */
struct Dwfl_Module *mr_objects_find(uint64_t address);
