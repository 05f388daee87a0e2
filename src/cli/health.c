#include "cli/cli.h"

#include <stdlib.h>

#include "control/client.h"

enum { TIMEOUT_MS = 5000, HTTP_OK = 200 };

bool mr_ask_health(const struct mr_http_options *server, bool ready, FILE *to)
{
    struct mr_error error = {0};
    struct mr_client_answer answer;
    if (mr_client_ask(server, ready ? "/readyz" : "/healthz", NULL, TIMEOUT_MS, &answer, &error) !=
        MR_OK) {
        fprintf(to, "%s\n", error.text);
        return false;
    }
    fputs(answer.body, to);
    free(answer.body);
    return answer.http_status == HTTP_OK;
}
