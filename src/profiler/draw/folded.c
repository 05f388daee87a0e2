/* Folded text: one line a stack, "root;frame;leaf 12". */

#include "profiler/draw/tree.h"

/* The number after the last blank; false when there is none. */
static bool line_value(const char *line, size_t len, size_t *ret_stack_len, uint64_t *ret_value)
{
    size_t digits = 0;
    while (digits < len && line[len - 1 - digits] >= '0' && line[len - 1 - digits] <= '9') {
        digits++;
    }
    if (digits == 0 || digits > 18 || len < digits + 2 || line[len - 1 - digits] != ' ') {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = len - digits; i < len; i++) {
        value = value * 10 + (uint64_t)(line[i] - '0');
    }
    *ret_stack_len = len - digits - 1;
    *ret_value = value;
    return true;
}

static bool folded_add_line(struct mr_flame *flame, mr_flame_side side, const char *line,
                            size_t len)
{
    uint64_t value;
    size_t left;
    if (!line_value(line, len, &left, &value)) {
        return false;
    }
    mr_slice names[MR_FLAME_DEPTH_MAX];
    size_t count = 0;
    while (left > 0 && count < MR_FLAME_DEPTH_MAX) {
        const char *end = memchr(line, ';', left);
        size_t name_len = end == NULL ? left : (size_t)(end - line);
        names[count++] = (mr_slice){.data = (const uint8_t *)line, .len = name_len};
        size_t taken = end == NULL ? left : name_len + 1;
        line += taken;
        left -= taken;
    }
    mr_flame_add(flame, side, names, count, value);
    return true;
}

size_t mr_flame_add_folded(struct mr_flame *flame, mr_flame_side side, const char *text, size_t len)
{
    size_t wrong = 0;
    while (len > 0) {
        const char *newline = memchr(text, '\n', len);
        size_t line_len = newline == NULL ? len : (size_t)(newline - text);
        size_t taken = newline == NULL ? len : line_len + 1;
        if (line_len > 0 && text[line_len - 1] == '\r') {
            line_len--;
        }
        wrong += line_len > 0 && !folded_add_line(flame, side, text, line_len);
        text += taken;
        len -= taken;
    }
    return wrong;
}

/* A name must not look like two frames or two lines. */
static void folded_add_name(struct mr_text *out, mr_slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char byte = (char)name.data[i];
        mr_text_add(out, byte == ';' ? ":" : byte == '\n' || byte == '\r' ? " " : &byte, 1);
    }
}

static void write_node(const struct mr_flame *flame, uint32_t node, mr_flame_side side,
                       struct mr_text *path, struct mr_text *out)
{
    const struct mr_flame_node *at = &flame->nodes[node];
    size_t path_len = path->len;
    if (node != MR_FLAME_ROOT) {
        if (path_len > 0) {
            mr_text_add(path, ";", 1);
        }
        folded_add_name(path, flame->names[at->name]);
    }
    if (at->self[side] > 0 && path->len > 0) {
        mr_text_format(out, "%s %llu\n", path->data, (unsigned long long)at->self[side]);
    }
    for (uint32_t child = at->child; child != MR_FLAME_NONE; child = flame->nodes[child].next) {
        write_node(flame, child, side, path, out);
    }
    path->len = path_len;
}

char *mr_flame_folded(const struct mr_flame *flame, mr_flame_side side, size_t *ret_len)
{
    struct mr_text path = {0};
    struct mr_text out = {0};
    mr_text_add(&path, "", 0);
    mr_text_add(&out, "", 0);
    write_node(flame, MR_FLAME_ROOT, side, &path, &out);
    free(path.data);
    if (ret_len != NULL) {
        *ret_len = out.len;
    }
    return out.data;
}
