#include "cli/versions.h"

#include "base/jemalloc.h"
#include "postgres/conn/pg_conn.h"
#include "sink/kafka/kafka.h"

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

void mr_versions_print(FILE *to)
{
    struct mr_versions versions = mr_versions();
    fprintf(to, "millrace " MR_VERSION "\nlibpq %s\nlibrdkafka %s\nallocator %s\n", versions.libpq,
            versions.librdkafka, versions.allocator);
}
