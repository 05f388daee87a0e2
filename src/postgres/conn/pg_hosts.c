#include "postgres/conn/pg_hosts.h"

static uint32_t items(const char *list)
{
    uint32_t count = 1;
    for (; *list != '\0'; list++) {
        count += *list == ',';
    }
    return count;
}

uint32_t mr_pg_host_count(const char *host, const char *hostaddr)
{
    /* Addresses go first, as in libpq: names beside them are for certificates. */
    const char *list = hostaddr != NULL && hostaddr[0] != '\0' ? hostaddr : host;
    return list == NULL ? 1 : items(list);
}

char *mr_pg_host_item(const char *list, uint32_t n)
{
    if (list == NULL) {
        return NULL;
    }
    for (; n > 0; n--) {
        list += strcspn(list, ",");
        if (*list == '\0') {
            break;
        }
        list++;
    }
    return MR_STRNDUP(list, strcspn(list, ","));
}

char *mr_pg_host_port(const char *ports, uint32_t n)
{
    bool one = ports != NULL && items(ports) == 1;
    return mr_pg_host_item(ports, one ? 0 : n);
}
