/* `millrace fleet status` and `top`: a fleet's pipelines, the worst first. */
#include <poll.h>

#include "base/thread.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "fleet/fleet.h"

enum { TOP_MS = 2000, WIDE = 28 };

static struct mr_show_text age(const cJSON *fleet, const cJSON *item, const char *path)
{
    return mr_show_seconds((mr_object_number(fleet, "at_ms") - mr_object_number(item, path)) / 1e3);
}

static const char *word(const cJSON *item, const char *path)
{
    const char *text = cJSON_GetStringValue(mr_object_at(item, path));
    return text == NULL || text[0] == '\0' ? "-" : text;
}

static void draw_pipelines(const cJSON *fleet, FILE *to)
{
    const cJSON *item;
    fprintf(to, "%-9s  %-*s  %-12s  %8s  %9s  %10s  %9s  %s\n", "STATE", WIDE, "PIPELINE", "NODE",
            "SINCE", "LAG", "KEPT WAL", "VERSION", "ERROR");
    cJSON_ArrayForEach(item, mr_object_at(fleet, "pipelines"))
    {
        fprintf(to, "%-9s  %-*s  %-12s  %8s  %9s  %10s  %9s  %s\n", word(item, "state"), WIDE,
                word(item, "name"), word(item, "node"), age(fleet, item, "since_ms").bytes,
                MR_SHOW_SECONDS(item, "lag_seconds"), MR_SHOW_BYTES(item, "retained_wal_bytes"),
                word(item, "program"), word(item, "error"));
    }
}

static void draw_nodes(const cJSON *fleet, FILE *to)
{
    const cJSON *item;
    fprintf(to, "\n%-20s  %-9s  %9s  %8s  %9s\n", "NODE", "STATE", "PROCESSES", "REVISION",
            "VERSION");
    cJSON_ArrayForEach(item, mr_object_at(fleet, "nodes"))
    {
        const char *state = mr_show_is(item, "unknown")   ? "unknown"
                            : mr_show_is(item, "drained") ? "drained"
                            : mr_show_is(item, "drain")   ? "draining"
                            : mr_show_is(item, "ready")   ? "ready"
                                                          : "not ready";
        fprintf(to, "%-20s  %-9s  %9.0f  %8.0f  %9s\n", word(item, "name"), state,
                mr_object_number(item, "processes"), mr_object_number(item, "revision"),
                word(item, "program"));
    }
}

static int count_of(const cJSON *fleet, const char *state)
{
    const cJSON *item;
    int count = 0;
    cJSON_ArrayForEach(item, mr_object_at(fleet, "pipelines"))
    {
        count += strcmp(word(item, "state"), state) == 0;
    }
    return count;
}

static void draw(const cJSON *fleet, FILE *to)
{
    fprintf(
        to, "fleet %s   revision %.0f   %d pipelines   %d streaming   %d held   %d unknown%s\n\n",
        word(fleet, "fleet"), mr_object_number(fleet, "revision"),
        cJSON_GetArraySize(mr_object_at(fleet, "pipelines")), count_of(fleet, "streaming"),
        count_of(fleet, "held"), count_of(fleet, "unknown"),
        mr_show_is(fleet, "whole") ? "" : "   KAFKA DOES NOT KEEP WHAT WAS APPLIED: apply again");
    draw_pipelines(fleet, to);
    draw_nodes(fleet, to);
}

/* Whether it goes on: after two seconds without a "q" or a signal. */
static bool waits(int signal_fd)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                           {.fd = STDIN_FILENO, .events = POLLIN}};
    char key = ' ';
    int count = poll(fds, isatty(STDIN_FILENO) ? 2 : 1, TOP_MS);
    bool has_key = count > 0 && fds[1].revents != 0 && read(STDIN_FILENO, &key, 1) == 1;
    return count == 0 || (has_key && key != 'q');
}

mr_status mr_ask_fleet(const char *path, bool as_json, bool again, FILE *to, int *ret_code,
                       struct mr_error *ret_error)
{
    struct mr_fleet_view *view = NULL;
    cJSON *fleet = NULL;
    int signal_fd = again ? mr_thread_signals(false) : -1;
    mr_status status = mr_fleet_view_open(path, &view, ret_error);
    while (status == MR_OK) {
        status = mr_fleet_view_look(view, &fleet, ret_error);
        if (status == MR_OK) {
            fputs(again ? "\033[H\033[2J" : "", to);
            if (as_json) {
                MR_FREED char *text = mr_object_text(fleet);
                fprintf(to, "%s\n", text);
            } else {
                draw(fleet, to);
            }
            fflush(to);
            *ret_code = count_of(fleet, "held") > 0 && !again;
            cJSON_Delete(fleet);
        }
        if (!again || (status == MR_OK && !waits(signal_fd))) {
            break;
        }
    }
    mr_fleet_view_close(view);
    if (again) {
        close(signal_fd);
    }
    return status;
}
