#include "terminal/terminal.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>

#include "base/jemalloc.h"
#include "kafka/options.h"
#include "postgres/conn/pg_conn.h"
#include "terminal/runbook.h"

enum { WIDTH = 80 };

void mr_terminal_wrap(FILE *to, const char *text, int at, int indent)
{
    while (*text != '\0') {
        int word = (int)strcspn(text, " \n");
        if (at > indent && at + 1 + word > WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", word, text);
        at += word;
        text += word;
        text += strspn(text, " \n");
    }
    fputc('\n', to);
}

void mr_terminal_row(FILE *to, const char *label, int column, const char *text)
{
    int used = fprintf(to, "  %s", label);
    if (used + 2 > column) {
        fprintf(to, "\n%*s", column, "");
    } else {
        fprintf(to, "%*s", column - used, "");
    }
    mr_terminal_wrap(to, text, column, column);
}

void mr_terminal_option(FILE *to, const char *name, char letter, const char *argument,
                        const char *text)
{
    enum { OPTION_COLUMN = 26 };
    char label[64];
    char short_name[] = "-x, ";
    short_name[1] = letter;
    snprintf(label, sizeof(label), "%s--%s%s%s", letter != 0 ? short_name : "    ", name,
             argument != NULL ? " " : "", argument != NULL ? argument : "");
    mr_terminal_row(to, label, OPTION_COLUMN, text);
}

struct mr_versions mr_versions(void)
{
    struct mr_versions versions = {.allocator = "libc"};
    int libpq = mr_pg_library_version();
    snprintf(versions.libpq, sizeof(versions.libpq), "%d.%d", libpq / 10000, libpq % 10000);
    snprintf(versions.librdkafka, sizeof(versions.librdkafka), "%s", mr_kafka_library_version());
    const char *jemalloc;
    size_t len = sizeof(jemalloc);
    if (mallctl != NULL && mallctl("version", &jemalloc, &len, NULL, 0) == 0) {
        snprintf(versions.allocator, sizeof(versions.allocator), "jemalloc %s", jemalloc);
    }
    return versions;
}

void mr_versions_print(const char *program, FILE *to)
{
    struct mr_versions versions = mr_versions();
    fprintf(to, "%s " MR_VERSION "\nlibpq %s\nlibrdkafka %s\nallocator %s\n", program,
            versions.libpq, versions.librdkafka, versions.allocator);
}

int mr_terminal_end(const char *program, mr_status status, const struct mr_error *error)
{
    if (status != MR_OK && error->text[0] != '\0') {
        fprintf(stderr, "%s: %s\n", program, error->text);
        mr_runbook_print_see(stderr, "see ", error->text, status);
    }
    return mr_status_exit_code(status);
}

void mr_terminal_begin(const char *program)
{
    /* Else what is opened next would be standard error, and get the log: a socket, for instance. */
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
    }
    close(fd);
    prctl(PR_SET_NAME, program); /* also where it was started as /proc/self/exe */
    /* A core file would hold rows. */
    prctl(PR_SET_DUMPABLE, getenv("MILLRACE_DUMPABLE") != NULL);
#ifdef __GLIBC__
    if (mallctl == NULL) {
        /* An arena for each thread of librdkafka would be a megabyte and more for nothing: hardly
         * any of them allocates. */
        mallopt(M_ARENA_MAX, 2);
        /* What a large row took is given back at once; left alone, glibc moves the limit up to 32
         * MiB after the first one. What is smaller stays: asking for the pages of librdkafka's
         * requests again and again costs half of all CPU. */
        mallopt(M_MMAP_THRESHOLD, 4 << 20);
        mallopt(M_TRIM_THRESHOLD, 64 << 20);
    }
#endif
}
