/* Usage: fuzz_seeds FOLDER
 *
 * Writes the seed corpus, one folder a target, from what the unit tests build their streams with,
 * from recordings of real servers, and the dictionary of the configuration. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "options/values.h"
#include "testing/recording.h"
#include "testing/stream_reader.h"

enum {
    XLOG_HEADER = 25,     /* what stands before the message in a 'w' payload */
    RECORDING_MAX = 2000, /* of a recording; longer inputs are slow */
};

static const char *folder;

static FILE *open_file(const char *target, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, target);
    mkdir(path, 0777);
    snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        fprintf(stderr, "fuzz_seeds: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return file;
}

static void write_file(const char *target, const char *name, mr_slice bytes)
{
    FILE *file = open_file(target, name);
    fwrite(bytes.data, 1, bytes.len, file);
    fclose(file);
}

/* Each message of the recording, once inside and once outside a transaction. */
static void write_messages(const char *name, mr_slice recording)
{
    mr_slice payload;
    unsigned number = 0;
    for (size_t at = 0; mr_recording_next(recording, &at, &payload);) {
        if (payload.data[0] != 'w') {
            continue;
        }
        for (unsigned inside = 0; inside < 2; inside++) {
            char seed[64];
            snprintf(seed, sizeof(seed), "%s-%03u-%u", name, number, inside);
            FILE *file = open_file("fuzz_pgoutput", seed);
            fputc((int)inside, file);
            fwrite(payload.data + XLOG_HEADER, 1, payload.len - XLOG_HEADER, file);
            fclose(file);
        }
        number++;
    }
}

static void write_streams(void)
{
    struct mr_recording everything = {0}, rows = {0};
    mr_recording_everything(&everything);
    mr_recording_rows(&rows, 8, 3);
    write_file("fuzz_stream", "everything", mr_recording_slice(&everything));
    write_file("fuzz_stream", "rows", mr_recording_slice(&rows));
    write_messages("built", mr_recording_slice(&everything));
    mr_recording_done(&everything);
    mr_recording_done(&rows);
}

static struct mr_text read_file(const char *path)
{
    struct mr_text bytes = {0};
    char part[4096];
    FILE *file = fopen(path, "rb");
    for (size_t len; file != NULL && (len = fread(part, 1, sizeof(part), file)) > 0;) {
        mr_text_add(&bytes, part, len);
    }
    if (file != NULL) {
        fclose(file);
    }
    return bytes;
}

/* What a real server sent, in the form of the targets' inputs. */
static void write_recording(const char *path)
{
    struct mr_text bytes = read_file(path);
    mr_slice file = {.data = (const uint8_t *)bytes.data, .len = bytes.len};
    struct mr_recording stream = {0};
    struct mr_stream_frame frame;
    struct mr_error error = {0};
    mr_status status = MR_OK;
    for (size_t at = 0; (status = mr_stream_file_next(file, &at, &frame, &error)) == MR_OK;) {
        if (frame.kind == MR_STREAM_RECEIVED) {
            mr_recording_payload(&stream, frame.bytes);
        }
    }
    if (status != MR_END) {
        fprintf(stderr, "fuzz_seeds: %s: %s\n", path, error.text);
        exit(1);
    }
    /* …/pg15/wide.rec becomes pg15-wide. */
    const char *version = strstr(path, "/recordings/") + strlen("/recordings/");
    char name[64];
    int version_len = (int)strcspn(version, "/");
    const char *of = version + version_len + 1;
    snprintf(name, sizeof(name), "%.*s-%.*s", version_len, version, (int)strcspn(of, "."), of);
    write_file("fuzz_stream", name, mr_recording_slice(&stream));
    write_messages(name, mr_recording_slice(&stream));
    FILE *whole = open_file("fuzz_recording", name);
    fputc('\3', whole);
    fwrite(file.data, 1, file.len < RECORDING_MAX ? file.len : RECORDING_MAX, whole);
    fclose(whole);
    mr_recording_done(&stream);
    mr_text_done(&bytes);
}

static void write_recordings(void)
{
    glob_t found;
    if (glob(MR_SOURCE_DIR "/tests/recordings/pg*/*.rec", 0, NULL, &found) != 0) {
        fputs("fuzz_seeds: there are no recordings in tests/recordings\n", stderr);
        exit(1);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        write_recording(found.gl_pathv[i]);
    }
    globfree(&found);
}

/* Every option with its default, a file of Outboxx's form, and the names for the dictionary. */
static void write_configurations(void)
{
    static const char outboxx[] =
        "[metadata]\nversion = \"v0\"\n[source]\ntype = \"postgres\"\n[source.postgres]\n"
        "connection = \"env:U\"\n[sink]\ntype = \"kafka\"\n[sink.kafka]\nbrokers = [\"b:1\"]\n"
        "[sink.kafka.properties]\n\"client.rack\" = \"a\"\n[[streams]]\nname = \"users\"\n"
        "[streams.source]\nresource = \"Users\"\noperations = [\"read\", \"insert\"]\n"
        "[streams.flow]\nformat = \"json\"\n"
        "[streams.sink]\ndestination = \"users.out\"\nrouting_key = \"id\"\n";
    write_file("fuzz_config", "outboxx", MR_SLICE(outboxx));
    FILE *defaults = open_file("fuzz_config", "defaults");
    FILE *dictionary = open_file(".", "fuzz_config.dict");
    fputs("tables = [\"public.t\", \"\\\"s\\\".\\\"a.b\\\"\"]\n", defaults);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        bool bare = option->kind == MR_KIND_BOOL || option->kind == MR_KIND_COUNT;
        bool list = option->kind == MR_KIND_STRINGS;
        const char *quote = bare ? "" : list ? "\"]" : "\"";
        fprintf(defaults, "%s%s = %s%s%s\n", option->fallback[0] == 0 ? "# " : "", option->path,
                bare   ? ""
                : list ? "[\""
                       : "\"",
                option->fallback, quote);
        fprintf(dictionary, "\"%s\"\n", option->path);
    }
    fclose(dictionary);
    fclose(defaults);
}

/* What honest servers answer to each question of fuzz_answer, and beginnings of what others
 * might. */
static void write_answers(void)
{
#define NULLS "\x1E\t\x1E\t\x1E\t\x1E\t\x1E\t\x1E\t\x1E\t\x1E\t\x1E\t\x1E"
    static const char *const answers[] = {
        "text\tt\t-5\t0/10\t\x1E\tf\t7\tA/1\na\tf\t5\t0/10\t\x1E\t\x1E\t\x1E\t\x1E",
        "4711\tmillrace\t10.0.0.7\tt",
        "7000000000000000001\t1\t0/2000\tshop\x1D"
        "0/1000",
        "7000000000000000001\t2\t0/2000\tshop\x1D"
        "00000002.history\t1\t0/1800\tno reason\x1D"
        "0/1000",
        "logical\tUTF8\t\x1E\t\x1E\tlogical\tpgoutput\tshop\t\x1E\treserved\t0\tf\t0/1000\t"
        "\x1E\t\x1E\t\x1E\t\x1E\tt\tt\tt\x1Dr\tp\td\tt\tt\nr\tp\td\tt\tt\x1D"
        "0\t\x1E\t0\t0",
        "logical\tUTF8\t\x1E\t\x1E" NULLS
        "\t\x1E\t\x1E\tt\tt\tt\x1Dr\tp\td\tt\tt\nr\tp\td\tt\tt\x1D"
        "0\t\x1E\t0\t0\x1Dmillrace_snapshot_1\t0/1000\t\x1E\x1D"
        "public\tr\tpublic\tr\tt\tt\tf\x1Dmillrace\t0/1000\tsnap\tpgoutput",
        "t\t0/2000\t16385\t700\tf\t0\t700\tf\tid\t23\t700\t0\x1D"
        "f\t0/2000\t" NULLS,
        "50000\t25\t\x1E\t-1\td\tmood\x1D"
        "50001\t50000\t\x1E\t-1\ta\t_mood",
        "0/2000\x1D"
        "16385\t2\n16386\t1",
    };
#undef NULLS
    for (size_t i = 0; i < MR_ARRAY_LEN(answers); i++) {
        char name[16];
        snprintf(name, sizeof(name), "question-%zu", i);
        FILE *file = open_file("fuzz_answer", name);
        fputc((int)i, file);
        fputs(answers[i], file);
        fclose(file);
    }
    write_file("fuzz_answer", "as-it-is",
               MR_SLICE("\0\x1BT\0\0\0\x1B\0\1c\0\0\0\0\0\0\0\0\0\0\x19\xFF\xFF\xFF\xFF\xFF\xFF"
                        "\0\0D\0\0\0\xB\0\1\0\0\0\1xC\0\0\0\rSELECT 1\0Z\0\0\0\5I"));
}

static void write_states(void)
{
    write_file(
        "fuzz_state", "whole",
        MR_SLICE("{\"version\":1,\"system_id\":\"7000000000000000001\",\"timeline\":1,\"slot\":"
                 "\"millrace\",\"publication\":\"millrace\",\"end_lsn\":\"16/B374D900\","
                 "\"position\":\"16/B374D848:7\"}"));
    write_file(
        "fuzz_state", "asked",
        MR_SLICE(
            "{\"version\":3,\"system_id\":\"7\",\"timeline\":1,\"slot\":\"s\",\"publication\":"
            "\"p\","
            "\"end_lsn\":\"1/2\",\"asked\":{\"step\":9,\"last_id\":2,\"paused\":false,\"tables\":["
            "{\"id\":1,\"schema\":\"s\",\"table\":\"t\",\"where\":\"a > "
            "1\",\"oid\":16384,\"rows\":5,"
            "\"passed_over\":0,\"form\":\"1f\",\"after\":[\"7\"]}]}}"));
    write_file("fuzz_state", "ledger",
               MR_SLICE("{\"version\":1,\"system_id\":\"7\",\"timeline\":1,\"slot\":\"s\","
                        "\"publication\":\"p\",\"end_lsn\":\"1/2\","
                        "\"ledger\":{\"n\":7,\"prev\":\"0123456789abcdef0123456789abcdef\","
                        "\"from\":\"0000000000000090-0000000001\","
                        "\"to\":\"0000000000000100-0000000001\",\"parts\":[[\"t\",0,1,\"01\"]],"
                        "\"owed\":[\"{}\"]}}"));
    FILE *dictionary = open_file(".", "fuzz_state.dict");
    fputs(
        "\"\\\"version\\\":1\"\n\"\\\"system_id\\\":\\\"\"\n\"\\\"timeline\\\":\"\n\"\\\"slot\\\":"
        "\\\"\"\n\"\\\"publication\\\":\\\"\"\n\"\\\"end_lsn\\\":\\\"\"\n\"\\\"position\\\":"
        "\\\"\"\n\"\\\\u0000\"\n\"1e400\"\n",
        dictionary);
    fclose(dictionary);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: fuzz_seeds FOLDER\n", stderr);
        return 64;
    }
    folder = argv[1];
    mkdir(folder, 0777);
    write_streams();
    write_recordings();
    write_configurations();
    write_answers();
    write_states();
    write_file("fuzz_json", "text",
               MR_SLICE("plain \"quoted\" \\ \t \x01 \xC3\xA9 \xF0\x9F\x98\x80 \xFF"));
    write_file(
        "fuzz_json", "context",
        MR_SLICE("{\"traceparent\":\"00-4b-00-01\",\"us\\u0065r\":\"\\ud83d\\ude00\",\"a\":null}"));
    write_file("fuzz_verify", "update",
               MR_SLICE("{\"before\":null,\"after\":{\"a\":1.5,\"b\":\"\\u00e9u\",\"c\":true},"
                        "\"op\":\"u\",\"source\":{\"lsn\":[1,{}]}}"));
    write_file("fuzz_http", "profile",
               MR_SLICE("127.0.0.1:9464\nseconds=30\nformat=svg\nunix\nlimit=600\n"));
    static const uint8_t two_records[58] = {1, 2, 3, [29] = 1, 2, 4};
    write_file("fuzz_condition", "texts",
               MR_SLICE("a[1] = E'it\\'s)' AND (b ~ '\\)' OR \"c)\" = $t$ ) $$ $t$) /* ( */ -- ("));
    write_file("fuzz_headers", "two", (mr_slice){.data = two_records, .len = sizeof(two_records)});
    return 0;
}
