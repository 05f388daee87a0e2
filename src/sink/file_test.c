/* What the file sink leaves behind, and what the next session makes of it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sink/file.h"
#include "testing/test.h"

enum { RECORDS = 3, VALUE_LEN = 40 };

struct fixture {
    char path[64];
    struct mr_sink *sink;
    struct mr_topics topics;
    struct mr_pool pool;
    unsigned done;
};

static void file_test_batch_done(void *context, struct mr_batch *batch)
{
    struct fixture *fixture = context;
    fixture->done++;
    mr_pool_release(&fixture->pool, batch);
}

static int file_test_setup(void **state)
{
    struct fixture *fixture = MR_NEW(struct fixture);
    strcpy(fixture->path, "/tmp/millrace-file-test-XXXXXX");
    close(mkstemp(fixture->path));
    fixture->sink = mr_file_sink_new(fixture->path);
    fixture->sink->owner =
        (struct mr_sink_owner){.done = file_test_batch_done, .context = fixture, .stop_fd = -1};
    mr_pool_init(&fixture->pool, 2, 2, 4096, 4096);
    *state = fixture;
    return 0;
}

static int file_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    fixture->sink->ops->free(fixture->sink);
    mr_topics_done(&fixture->topics);
    mr_pool_done(&fixture->pool);
    unlink(fixture->path);
    free(fixture);
    return 0;
}

static struct mr_batch *file_test_make_batch(struct fixture *fixture)
{
    struct mr_batch *batch = mr_pool_acquire(&fixture->pool);
    for (int i = 0; i < RECORDS; i++) {
        struct mr_buffer buffer = mr_batch_buffer(batch);
        struct mr_record record = {.topic = mr_topics_intern(&fixture->topics, "t"),
                                   .value = buffer.at,
                                   .value_len = VALUE_LEN};
        for (int j = 0; j < VALUE_LEN; j++) {
            mr_buffer_append(&buffer, "7", 1);
        }
        assert_true(mr_batch_commit(batch, buffer.at, &record, 1));
    }
    batch->state = MR_BATCH_SEALED;
    return batch;
}

static mr_status write_session(struct fixture *fixture)
{
    struct mr_error error = {0};
    mr_status status = fixture->sink->ops->open(fixture->sink, &error);
    struct mr_batch *batch = file_test_make_batch(fixture);
    status = status == MR_OK ? fixture->sink->ops->send(fixture->sink, batch, &error) : status;
    if (status != MR_OK) {
        mr_pool_release(&fixture->pool, batch);
    }
    fixture->sink->ops->close(fixture->sink);
    return status;
}

static void file_test_fill(const struct fixture *fixture, const char *text)
{
    FILE *file = fopen(fixture->path, "w");
    fputs(text, file);
    fclose(file);
}

/* The file is `before` and then whole lines only. */
static void assert_lines(const struct fixture *fixture, const char *before, int lines)
{
    static const char line[] =
        "{\"topic\":\"t\",\"key\":null,\"value\":7777777777777777777777777777777777777777}\n";
    char text[4096] = "";
    FILE *file = fopen(fixture->path, "r");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_memory_equal(text, before, strlen(before));
    const char *at = text + strlen(before);
    for (int i = 0; i < lines; i++, at += sizeof(line) - 1) {
        assert_memory_equal(at, line, sizeof(line) - 1);
    }
    assert_string_equal(at, "");
}

/* A disk that is full in the middle of a line, as the kernel's limit on a file's size makes one. */
static void test_session_after_a_full_disk(void **state)
{
    struct fixture *fixture = *state;
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit limit = {.rlim_cur = 100, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    mr_status status = write_session(fixture);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, MR_ERR_TRANSIENT);
    assert_int_equal(fixture->done, 0);
    assert_int_equal(write_session(fixture), MR_OK);
    assert_lines(fixture,
                 "{\"topic\":\"t\",\"key\":null,\"value\":"
                 "7777777777777777777777777777777777777777}\n",
                 RECORDS);
}

/* As kill -9 leaves it, wherever the line was cut. */
static void test_start_after_a_kill(void **state)
{
    static const char *const cut[] = {"", "{",
                                      "{\"topic\":", "{\"topic\":\"t\",\"key\":null,\"val"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MR_ARRAY_LEN(cut); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{\"topic\":\"t\"}\n%s", cut[i]);
        file_test_fill(fixture, text);
        assert_int_equal(write_session(fixture), MR_OK);
        assert_lines(fixture, "{\"topic\":\"t\"}\n", RECORDS);
    }
}

static void test_line_of_somebody_else_is_kept(void **state)
{
    struct fixture *fixture = *state;
    file_test_fill(fixture, "one\ntwo");
    assert_int_equal(write_session(fixture), MR_OK);
    assert_lines(fixture, "one\ntwo\n", RECORDS);
}

/* JSON stays as it is, text becomes a string, other bytes base64; null stays null. */
static void test_contents(void **state)
{
    static const uint8_t bytes[] = {0, 0, 0, 0, 7, 0xFF};
    struct fixture *fixture = *state;
    const struct mr_topic *topic = mr_topics_intern(&fixture->topics, "t");
    struct mr_record records[] = {
        {.topic = topic, .key = (const uint8_t *)"{\"id\":1}", .key_len = 8, .value = bytes},
        {.topic = topic, .key = (const uint8_t *)"a\"b", .key_len = 3, .value = NULL},
        {.topic = topic, .key = NULL, .value = bytes, .value_len = sizeof(bytes)},
    };
    records[0].value = records[0].key;
    records[0].value_len = records[0].key_len;
    records[1].key_content = MR_CONTENT_TEXT;
    records[2].value_content = MR_CONTENT_BINARY;
    struct mr_batch *batch = mr_pool_acquire(&fixture->pool);
    assert_true(mr_batch_commit(batch, batch->bytes_at, records, MR_ARRAY_LEN(records)));
    batch->state = MR_BATCH_SEALED;
    struct mr_error error = {0};
    const struct mr_sink_ops *ops = fixture->sink->ops;
    assert_int_equal(ops->open(fixture->sink, &error), MR_OK);
    assert_int_equal(ops->send(fixture->sink, batch, &error), MR_OK);
    ops->close(fixture->sink);
    assert_lines(fixture,
                 "{\"topic\":\"t\",\"key\":{\"id\":1},\"value\":{\"id\":1}}\n"
                 "{\"topic\":\"t\",\"key\":\"a\\\"b\",\"value\":null}\n"
                 "{\"topic\":\"t\",\"key\":null,\"value\":\"AAAAAAf/\"}\n",
                 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_session_after_a_full_disk, file_test_setup,
                                        file_test_teardown),
        cmocka_unit_test_setup_teardown(test_start_after_a_kill, file_test_setup,
                                        file_test_teardown),
        cmocka_unit_test_setup_teardown(test_line_of_somebody_else_is_kept, file_test_setup,
                                        file_test_teardown),
        cmocka_unit_test_setup_teardown(test_contents, file_test_setup, file_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
