#include "event/context.h"

#include "base/json.h"

struct text {
    const uint8_t *at, *end;
};

static void context_skip_space(struct text *text)
{
    while (text->at < text->end &&
           (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r')) {
        text->at++;
    }
}

static bool context_take(struct text *text, const char *token)
{
    size_t len = strlen(token);
    context_skip_space(text);
    if ((size_t)(text->end - text->at) < len || memcmp(text->at, token, len) != 0) {
        return false;
    }
    text->at += len;
    return true;
}

/* What is between the quotes. */
static bool context_take_string(struct text *text, mr_slice *ret)
{
    context_skip_space(text);
    size_t len = mr_json_string_length(text->at, (size_t)(text->end - text->at));
    if (len == 0) {
        return false;
    }
    *ret = (mr_slice){.data = text->at + 1, .len = len - 2};
    text->at += len;
    return true;
}

/* The number of the name, which the text may have escaped; `name_count`: it is none that is let
 * through. */
static uint32_t context_find_name(struct mr_context *context, mr_slice name)
{
    uint8_t *room = context->room[1 - context->at];
    mr_slice plain = {.data = room, .len = mr_json_unescape(room, name.data, name.len)};
    uint32_t i = 0;
    while (i < context->name_count && !mr_slice_equal(mr_slice_of(context->names[i]), plain)) {
        i++;
    }
    return i;
}

/* Of several members with one name the last counts, as in jsonb. `values` have no data where there
 * is none. */
static bool read_object(struct mr_context *context, mr_slice content, mr_slice *values)
{
    struct text text = {.at = content.data, .end = content.data + content.len};
    if (!context_take(&text, "{")) {
        return false;
    }
    bool ended = context_take(&text, "}");
    while (!ended) {
        mr_slice name, value = {0};
        if (!context_take_string(&text, &name) || !context_take(&text, ":") ||
            (!context_take_string(&text, &value) && !context_take(&text, "null"))) {
            return false;
        }
        uint32_t i = context_find_name(context, name);
        if (i < context->name_count) {
            values[i] = value;
        }
        ended = context_take(&text, "}");
        if (!ended && !context_take(&text, ",")) {
            return false;
        }
    }
    context_skip_space(&text);
    return text.at == text.end;
}

/* A line break in a header could pass for another header where a consumer hands it on by HTTP. */
static bool has_control(const uint8_t *text, size_t len)
{
    enum { DELETE = 0x7F };
    return MR_ANY(one, text, len, *one < ' ' || *one == DELETE);
}

/* Of a member the lengths of a header take six bytes, as its quotes, colon and comma or brace do at
 * least, so there is room. */
static bool context_append(struct mr_buffer *out, const char *name, mr_slice value)
{
    uint8_t *header = mr_header_begin(out, name);
    uint8_t *text = mr_buffer_reserve(out, value.len);
    MR_ASSERT(text != NULL);
    size_t len = mr_json_unescape(text, value.data, value.len);
    out->at = text + len;
    mr_header_end(out, header);
    return !has_control(text, len);
}

enum mr_context_outcome mr_context_read(struct mr_context *context, mr_slice content,
                                        mr_slice *ret_headers)
{
    mr_slice values[MR_CONTEXT_NAMES_MAX] = {{0}};
    MR_ASSERT(context->name_count <= MR_CONTEXT_NAMES_MAX);
    if (content.len > MR_CONTEXT_BYTES_MAX) {
        return MR_CONTEXT_TOO_LARGE;
    }
    if (!read_object(context, content, values)) {
        return MR_CONTEXT_MALFORMED;
    }
    uint8_t *begin = context->room[1 - context->at];
    struct mr_buffer out = mr_buffer_init(begin, MR_CONTEXT_BYTES_MAX);
    for (uint32_t i = 0; i < context->name_count; i++) {
        if (values[i].data != NULL && !context_append(&out, context->names[i], values[i])) {
            return MR_CONTEXT_MALFORMED;
        }
    }
    context->at = 1 - context->at;
    *ret_headers = (mr_slice){.data = begin, .len = (size_t)(out.at - begin)};
    return MR_CONTEXT_TAKEN;
}
