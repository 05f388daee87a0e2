/* A sample is a line with the thread's name and number, then its frames, leaf first, then an empty line:
 *
 *     rdk:broker1 12345
 *             7f0c0a1b2c3d LZ4_compress_fast+0x1d (/usr/lib/liblz4.so.1.9.4)
 */
#include "profiler/draw/perf_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES_MAX = MR_FLAME_DEPTH_MAX - 1 };

struct mr_perf_script {
    struct mr_flame *flame;
    mr_flame_side side;
    char *program;
    char thread[64];
    bool open;
    size_t count;
    size_t samples;
    char names[FRAMES_MAX][MR_FLAME_NAME_MAX]; /* leaf first */
};

struct mr_perf_script *mr_perf_script_new(struct mr_flame *flame, mr_flame_side side,
                                          const char *program)
{
    struct mr_perf_script *script = MR_NEW(struct mr_perf_script);
    script->flame = flame;
    script->side = side;
    script->program = MR_STRDUP(program);
    script->open = false;
    script->count = script->samples = 0;
    return script;
}

static void sample_end(struct mr_perf_script *script)
{
    if (!script->open) {
        return;
    }
    mr_slice names[FRAMES_MAX + 1];
    names[0] = mr_slice_of(script->thread);
    for (size_t i = 0; i < script->count; i++) {
        names[i + 1] = mr_slice_of(script->names[script->count - 1 - i]);
    }
    mr_flame_add(script->flame, script->side, names, script->count + 1, 1);
    script->samples++;
    script->open = false;
}

/* "rdk:broker1 12345": the number at the end goes, threads of one name are one. */
static void sample_begin(struct mr_perf_script *script, const char *line, size_t len)
{
    sample_end(script);
    while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == ':')) {
        len--;
    }
    size_t name = len;
    while (name > 0 &&
           ((line[name - 1] >= '0' && line[name - 1] <= '9') || line[name - 1] == '/')) {
        name--;
    }
    if (name > 0 && name < len && line[name - 1] == ' ') {
        len = name;
    }
    while (len > 0 && line[len - 1] == ' ') {
        len--;
    }
    snprintf(script->thread, sizeof(script->thread), "%.*s", (int)len, line);
    script->open = true;
    script->count = 0;
}

static const char *base_name(const char *path, size_t *len)
{
    const char *slash = memrchr(path, '/', *len);
    if (slash == NULL) {
        return path;
    }
    *len -= (size_t)(slash + 1 - path);
    return slash + 1;
}

/* Without "+0x1d" and, for C++, as it is. */
static size_t without_offset(const char *symbol, size_t len)
{
    const char *plus = memrchr(symbol, '+', len);
    bool is_offset =
        plus != NULL && len - (size_t)(plus - symbol) > 3 && plus[1] == '0' && plus[2] == 'x';
    return is_offset ? (size_t)(plus - symbol) : len;
}

/* What the kernel's part calls itself: "([kernel.kallsyms])", "([nf_tables])", "(/lib/….ko)". */
static bool is_kernel(const char *library, size_t len)
{
    return (len > 7 && memcmp(library, "[kernel", 7) == 0) ||
           (len > 2 && library[0] == '[' && memcmp(library, "[vdso", 5) != 0 &&
            memcmp(library, "[unknown", len < 8 ? len : 8) != 0);
}

static void frame_add(struct mr_perf_script *script, const char *line, size_t len)
{
    /* The address. */
    while (len > 0 && *line != ' ') {
        line++, len--;
    }
    while (len > 0 && *line == ' ') {
        line++, len--;
    }
    const char *open = len > 0 && line[len - 1] == ')' ? memrchr(line, '(', len) : NULL;
    if (open == NULL || script->count == FRAMES_MAX) {
        return;
    }
    const char *path = open + 1;
    size_t path_len = len - (size_t)(path - line) - 1;
    bool kernel = is_kernel(path, path_len);
    size_t library_len = path_len;
    const char *library = base_name(path, &library_len);
    size_t symbol_len = (size_t)(open - line);
    while (symbol_len > 0 && line[symbol_len - 1] == ' ') {
        symbol_len--;
    }
    symbol_len = without_offset(line, symbol_len);
    char *name = script->names[script->count++];
    bool unknown = symbol_len == 0 || (symbol_len == 9 && memcmp(line, "[unknown]", 9) == 0);
    if (library_len > 2 && library[0] == '[') { /* "[vdso]", "[unknown]" */
        library++, library_len -= 2;
    }
    if (kernel) {
        library = "kernel";
        library_len = strlen(library);
    }
    if (unknown) {
        snprintf(name, MR_FLAME_NAME_MAX, "[%.*s]", (int)library_len, library);
    } else if (library_len == strlen(script->program) &&
               memcmp(library, script->program, library_len) == 0) {
        snprintf(name, MR_FLAME_NAME_MAX, "%.*s", (int)symbol_len, line);
    } else {
        snprintf(name, MR_FLAME_NAME_MAX, "%.*s [%.*s]", (int)symbol_len, line, (int)library_len,
                 library);
    }
}

void mr_perf_script_line(struct mr_perf_script *script, const char *line, size_t len)
{
    size_t indent = 0;
    while (indent < len && (line[indent] == ' ' || line[indent] == '\t')) {
        indent++;
    }
    if (indent == len) {
        sample_end(script);
    } else if (*line == '\t' || (script->open && indent > 0)) {
        frame_add(script, line + indent, len - indent);
    } else if (*line != '#') {
        /* perf aligns names to the right: a line between samples begins one, blanks or not. */
        sample_begin(script, line + indent, len - indent);
    }
}

size_t mr_perf_script_done(struct mr_perf_script *script)
{
    sample_end(script);
    size_t samples = script->samples;
    free(script->program);
    free(script);
    return samples;
}
