#include "cli/cli.h"

#include <stdlib.h>

#include "control/client.h"

enum { TIMEOUT_MS = 5000, HTTP_OK = 200 };

bool mr_ask_health(const struct mr_http_options *server, bool ready, FILE *to)
{
    struct mr_error error = {0};
    char *body = NULL;
    long http_status = 0;
    if (mr_client_get(server, ready ? "/readyz" : "/healthz", TIMEOUT_MS, &body, NULL, &http_status,
                      &error) != MR_OK) {
        fprintf(to, "%s\n", error.text);
        return false;
    }
    fputs(body, to);
    free(body);
    return http_status == HTTP_OK;
}
