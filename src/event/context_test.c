#include "event/context.h"

#include "base/json.h"
#include "testing/test.h"

static const char *const names[] = {"traceparent", "user", "reason"};

/* What was taken last, as "name=value;". */
struct fixture {
    struct mr_context context;
    mr_slice headers;
    char text[8192];
};

static int context_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->context.names = names;
    fixture->context.name_count = MR_ARRAY_LEN(names);
    *state = fixture;
    return 0;
}

static int context_test_teardown(void **state)
{
    free(*state);
    return 0;
}

/* The content in a block of exactly its size, so that a sanitizer sees a read past it. */
static enum mr_context_outcome context_test_take(struct fixture *fixture, const char *content,
                                                 size_t len)
{
    uint8_t *bytes = malloc(len + (len == 0));
    memcpy(bytes, content, len);
    enum mr_context_outcome outcome = mr_context_read(
        &fixture->context, (mr_slice){.data = bytes, .len = len}, &fixture->headers);
    free(bytes);
    struct mr_header header;
    size_t used = 0;
    fixture->text[0] = '\0';
    for (size_t at = 0; mr_header_in(fixture->headers, &at, &header);) {
        assert_true(at <= fixture->headers.len);
        assert_true(mr_is_utf8(header.value.data, header.value.len));
        used += (size_t)snprintf(fixture->text + used, sizeof(fixture->text) - used, "%.*s=%.*s;",
                                 MR_SLICE_ARGS(header.name), MR_SLICE_ARGS(header.value));
    }
    return outcome;
}

static void test_read_what_is_taken(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *content, *want;
    } cases[] = {
        {"{}", ""},
        {" { } ", ""},
        {"{\"user\":\"u-17\"}", "user=u-17;"},
        {"\t{\r\n\"user\" : \"u\" , \"reason\" : \"r\" }\n", "user=u;reason=r;"},
        {"{\"reason\":\"r\",\"other\":\"o\",\"traceparent\":\"00-a-b-01\"}",
         "traceparent=00-a-b-01;reason=r;"},
        {"{\"user\":\"\"}", "user=;"},
        {"{\"user\":null,\"reason\":\"r\"}", "reason=r;"},
        {"{\"user\":\"a\",\"user\":\"b\"}", "user=b;"},
        {"{\"user\":\"a\",\"user\":null}", ""},
        {"{\"u\\u0073er\":\"a\\u00e9\\\"\\\\\\/\"}", "user=a\xC3\xA9\"\\/;"},
        {"{\"user\":\"\\uD83D\\uDE00 \xF0\x9F\x98\x80\"}",
         "user=\xF0\x9F\x98\x80 \xF0\x9F\x98\x80;"},
        {"{\"user\":\"\\ud800\"}", "user=\xEF\xBF\xBD;"},
        {"{\"User\":\"a\",\"users\":\"b\",\"use\":\"c\",\"\":\"d\"}", ""},
        {"{\"other\":\"a\\nb\",\"user\":\"u\"}", "user=u;"}, /* nothing of it goes out */
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        assert_int_equal(context_test_take(fixture, cases[i].content, strlen(cases[i].content)),
                         MR_CONTEXT_TAKEN);
        assert_string_equal(fixture->text, cases[i].want);
    }
}

static void test_read_what_is_malformed(void **state)
{
    struct fixture *fixture = *state;
    static const char good[] = "{\"user\":\"u-17\",\"reason\":\"refund\"}";
    static const mr_slice cases[] = {
        MR_SLICE(""),
        MR_SLICE("null"),
        MR_SLICE("\"user\""),
        MR_SLICE("[]"),
        MR_SLICE("{"),
        MR_SLICE("{\"user\":1}"),
        MR_SLICE("{\"user\":true}"),
        MR_SLICE("{\"user\":nul}"),
        MR_SLICE("{\"user\":{\"user\":\"u\"}}"),
        MR_SLICE("{\"user\":[\"u\"]}"),
        MR_SLICE("{\"other\":1}"),
        MR_SLICE("{\"other\":{}}"),
        MR_SLICE("{user:\"u\"}"),
        MR_SLICE("{'user':'u'}"),
        MR_SLICE("{\"user\":\"u\",}"),
        MR_SLICE("{,\"user\":\"u\"}"),
        MR_SLICE("{\"user\" \"u\"}"),
        MR_SLICE("{\"user\":\"u\"}}"),
        MR_SLICE("{\"user\":\"u\"} {}"),
        MR_SLICE("{\"user\":\"u\"}\0"),
        MR_SLICE("\xEF\xBB\xBF{\"user\":\"u\"}"),
        MR_SLICE("{\"user\":\"a\0b\"}"),
        MR_SLICE("{\"user\":\"a\\u0000b\"}"),
        MR_SLICE("{\"user\":\"a\nb\"}"),
        MR_SLICE("{\"user\":\"a\\r\\nb\"}"),
        MR_SLICE("{\"user\":\"a\\u001Fb\"}"),
        MR_SLICE("{\"user\":\"a\x7F\"}"),
        MR_SLICE("{\"user\":\"\\x\"}"),
        MR_SLICE("{\"user\":\"\\u12g4\"}"),
        MR_SLICE("{\"user\":\"\xFF\"}"),
        MR_SLICE("{\"user\":\"\xC3\"}"),
        MR_SLICE("{\"user\":\"\xED\xA0\x80\"}"),
        MR_SLICE("{\"us\xFF\":\"u\"}"),
        MR_SLICE("{\"user\":\"u\",\"other\":\"\xFF\"}"),
    };
    assert_int_equal(context_test_take(fixture, good, strlen(good)), MR_CONTEXT_TAKEN);
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        assert_int_equal(context_test_take(fixture, (const char *)cases[i].data, cases[i].len),
                         MR_CONTEXT_MALFORMED);
        assert_string_equal(fixture->text, "user=u-17;reason=refund;"); /* as it was */
    }
    for (size_t len = 0; len + 1 < sizeof(good); len++) {
        assert_int_equal(context_test_take(fixture, good, len), MR_CONTEXT_MALFORMED);
        assert_string_equal(fixture->text, "user=u-17;reason=refund;");
    }
}

/* Up to the limit all fits, however short the members are. */
static void test_read_sizes(void **state)
{
    struct fixture *fixture = *state;
    char content[MR_CONTEXT_BYTES_MAX + 2];
    for (size_t len = MR_CONTEXT_BYTES_MAX - 1; len <= MR_CONTEXT_BYTES_MAX + 1; len++) {
        memset(content, 'x', len);
        memcpy(content, "{\"user\":\"", 9);
        memcpy(content + len - 2, "\"}", 2);
        bool fits = len <= MR_CONTEXT_BYTES_MAX;
        assert_int_equal(context_test_take(fixture, content, len),
                         fits ? MR_CONTEXT_TAKEN : MR_CONTEXT_TOO_LARGE);
        size_t want =
            (fits ? len : MR_CONTEXT_BYTES_MAX) - 11; /* what is too large changes nothing */
        assert_int_equal(strlen(fixture->text), strlen("user=;") + want);
    }
    static const char *const many[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                       "i", "j", "k", "l", "m", "n", "o", "p"};
    fixture->context.names = many;
    fixture->context.name_count = MR_CONTEXT_NAMES_MAX;
    size_t len = 0;
    for (size_t i = 0; i < MR_CONTEXT_NAMES_MAX; i++) {
        len += (size_t)snprintf(content + len, sizeof(content) - len, "%c\"%s\":\"\"",
                                i == 0 ? '{' : ',', many[i]);
    }
    content[len++] = '}';
    assert_int_equal(context_test_take(fixture, content, len), MR_CONTEXT_TAKEN);
    assert_string_equal(fixture->text, "a=;b=;c=;d=;e=;f=;g=;h=;i=;j=;k=;l=;m=;n=;o=;p=;");
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, context_test_setup, context_test_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_read_what_is_taken),
        TEST(test_read_what_is_malformed),
        TEST(test_read_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
