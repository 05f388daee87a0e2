/* Usage: fuzz_seeds FOLDER
 *
 * Writes the seed corpus, one folder a target, from what the unit tests build their streams with, from recordings of real
 * servers, and the dictionary of the configuration. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "config/values.h"
#include "record/stream_file.h"
#include "testing/recording.h"

enum { XLOG_HEADER = 25 }; /* what stands before the message in a 'w' payload */

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
        "connection_env = \"U\"\n[sink]\ntype = \"kafka\"\n[sink.kafka]\nbrokers = [\"b:1\"]\n"
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
    write_file("fuzz_json", "text",
               MR_SLICE("plain \"quoted\" \\ \t \x01 \xC3\xA9 \xF0\x9F\x98\x80 \xFF"));
    write_file("fuzz_http", "profile",
               MR_SLICE("127.0.0.1:9464\nseconds=30\nformat=svg\nunix\nlimit=600\n"));
    static const uint8_t two_records[58] = {1, 2, 3, [29] = 1, 2, 4};
    write_file("fuzz_headers", "two", (mr_slice){.data = two_records, .len = sizeof(two_records)});
    return 0;
}
