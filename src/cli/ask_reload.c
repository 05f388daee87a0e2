/* `millrace reload`: asks a running one, and waits for what comes of it. */
#include <poll.h>

#include "ask/client.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/show.h"

enum { LOOK_MS = 50 };
#define PATIENCE_NS (INT64_C(90) * 1000000000) /* longer than millrace itself has */

static void print_list(FILE *to, const char *what, const cJSON *answer, const char *name)
{
    const char *list = mr_show_word(answer, name);
    if (list[0] != '\0') {
        fprintf(to, "%-15s %s\n", what, list);
    }
}

static void print_outcome(const cJSON *answer, FILE *to)
{
    const char *outcome = mr_show_word(answer, "outcome");
    bool checked = strcmp(outcome, "checked") == 0;
    fprintf(to, "%s\n", outcome);
    print_list(to, checked ? "would change:" : "changed:", answer, "changed");
    print_list(to, "tables added:", answer, "tables_added");
    print_list(to, "tables removed:", answer, "tables_removed");
    print_list(to, "secrets read:", answer, "secrets_changed");
    print_list(to, "needs restart:", answer, "needs_restart");
    const char *problems = mr_show_word(answer, "problems");
    if (problems[0] != '\0') {
        fprintf(to, "%s\n", problems);
    }
}

static mr_status await_outcome(const struct mr_http_options *server, double number, cJSON **ret,
                               struct mr_error *ret_error)
{
    char path[80];
    snprintf(path, sizeof(path), "/api/reload/outcome?request=%.0f", number);
    int64_t end_ns = mr_monotonic_ns() + PATIENCE_NS;
    while (mr_monotonic_ns() < end_ns) {
        cJSON *answer = NULL;
        MR_TRY(mr_client_object(server, path, NULL, &answer, ret_error));
        if (mr_show_is(answer, "done")) {
            *ret = answer;
            return MR_OK;
        }
        cJSON_Delete(answer);
        poll(NULL, 0, LOOK_MS);
    }
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "millrace does not say what came of it; its log may");
}

static mr_status ask_reload_post(const struct mr_http_options *server, const char *path,
                                 bool dry_run, double *ret_number, struct mr_error *ret_error)
{
    char request[160];
    MR_OBJECT cJSON *taken = NULL;
    snprintf(request, sizeof(request), "/api/reload?dry_run=%d&content=%s", dry_run,
             path == NULL ? "" : mr_file_digest(path).text);
    MR_TRY(mr_client_object(server, request, "", &taken, ret_error));
    const cJSON *other = mr_object_at(taken, "reads");
    MR_FREED char *argument = mr_show_argument(path == NULL ? "" : path);
    *ret_number = mr_object_number(taken, "request");
    return other == NULL
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "the running millrace reads %s, whose content is not that of %s; nothing "
                         "was changed or compared. Put the new content there, and reload "
                         "(--address finds a millrace without a file); millrace check --config %s "
                         "looks at a file by itself",
                         mr_show_word(other, ""), path, argument);
}

mr_status mr_ask_reload(const struct mr_http_options *server, const char *path, bool dry_run,
                        FILE *to, struct mr_error *ret_error)
{
    MR_OBJECT cJSON *answer = NULL;
    double number;
    MR_TRY(ask_reload_post(server, path, dry_run, &number, ret_error));
    MR_TRY(await_outcome(server, number, &answer, ret_error));
    print_outcome(answer, to);
    fflush(to);
    int code = (int)mr_object_number(answer, "exit_code");
    mr_error_set(ret_error, MR_OK, "%s", mr_show_word(answer, "error"));
    return code == 0                                    ? MR_OK
           : code == mr_status_exit_code(MR_ERR_CONFIG) ? MR_ERR_CONFIG
                                                        : MR_ERR_TRANSIENT;
}
