/* What the HTTP server reads of a request itself (libmicrohttpd parses the rest): targets, numbers,
 * and listening addresses. Numbers stay in their range; an address that is taken is terminated and
 * has a place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/http_internal.h"
#include "control/listen.h"
#include "fuzz.h"

enum { LOW = -5, HIGH = 600 };

/* A NUL-terminated copy up to the next line break; moves after it. */
static char *next_line(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *stop = memchr(*at, '\n', (size_t)(end - *at));
    size_t len = (size_t)((stop == NULL ? end : stop) - *at);
    char *line = MR_STRNDUP((const char *)*at, len);
    *at = stop == NULL ? end : stop + 1;
    return line;
}

static void check_address(const char *text)
{
    struct mr_address address;
    struct mr_error error = {0};
    if (mr_address_parse(text, &address, &error) != MR_OK) {
        MR_ASSERT(error.text[0] != 0);
        return;
    }
    MR_ASSERT(memchr(address.host, 0, sizeof(address.host)) != NULL);
    MR_ASSERT(memchr(address.path, 0, sizeof(address.path)) != NULL);
    MR_ASSERT(!address.is_unix || address.path[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    char *path = next_line(&at, end);
    check_address(path);
    struct mr_http_request *request = mr_http_request_new(path);
    mr_http_target_parse(path, &request->target);
    MR_ASSERT(request->target.len <= strlen(path));
    MR_ASSERT(memchr(request->target.authority, 0, sizeof(request->target.authority)) != NULL);
    while (at < end) {
        char *text = next_line(&at, end);
        int64_t number;
        if (mr_http_parse_number(text, LOW, HIGH, &number)) {
            MR_ASSERT(number >= LOW && number <= HIGH);
        }
        free(text);
    }
    mr_http_request_free(request);
    free(path);
    return 0;
}
