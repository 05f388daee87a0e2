#include "cli/cli.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <time.h>

#include "ask/client.h"
#include "cli/show.h"
#include "profiler/profiler.h"

enum {
    SECONDS_DEFAULT = 10,
    GRACE_MS = 30000, /* for naming what was seen, on a busy machine */
};

static const struct {
    const char *word; /* of its pages, and of files */
    const char *title;
    const char *unit;
} kinds[] = {
    {"profile", "CPU", "nanoseconds"},
    {"heap", "Heap", "bytes"},
};

struct place {
    char folder[PATH_MAX];
    char name[NAME_MAX];
    bool is_pprof; /* the name's ending asks for that form */
};

static bool strip(char *name, const char *ending)
{
    size_t len = strlen(name);
    size_t ending_len = strlen(ending);
    bool has = len > ending_len && strcmp(name + len - ending_len, ending) == 0;
    if (has) {
        name[len - ending_len] = '\0';
    }
    return has;
}

static mr_status choose_place(const char *out, const char *word, struct place *ret,
                              struct mr_error *ret_error)
{
    if (out == NULL) {
        time_t now = time(NULL);
        struct tm local;
        char when[32];
        strftime(when, sizeof(when), "%Y-%m-%d-%H_%M_%S", localtime_r(&now, &local));
        snprintf(ret->folder, sizeof(ret->folder), ".");
        snprintf(ret->name, sizeof(ret->name), "%s-%s", word, when);
        ret->is_pprof = false;
        return MR_OK;
    }
    const char *slash = strrchr(out, '/');
    const char *name = slash == NULL ? out : slash + 1;
    size_t folder_len = slash == NULL ? 0 : (size_t)(slash - out);
    if (name[0] == '\0' || strlen(name) >= sizeof(ret->name) || folder_len >= PATH_MAX) {
        return mr_fail(ret_error, MR_ERR_USAGE, "--out wants the name of a file, not \"%s\"", out);
    }
    snprintf(ret->folder, sizeof(ret->folder), "%.*s", folder_len == 0 ? 1 : (int)folder_len,
             slash == NULL ? "." : out);
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    ret->is_pprof = strip(ret->name, ".pb.gz");
    strip(ret->name, ".svg");
    return MR_OK;
}

static mr_status cli_profile_write_file(const struct place *place, const char *ending,
                                        const void *bytes, size_t len, FILE *to,
                                        struct mr_error *ret_error)
{
    char name[NAME_MAX + 16];
    snprintf(name, sizeof(name), "%s%s", place->name, ending);
    MR_TRY(mr_file_write_whole(place->folder, name, bytes, len, ret_error));
    fprintf(to, "wrote %s/%s\n", place->folder, name);
    return MR_OK;
}

/* A person at a desktop sees it at once; a script, a server or a container has no display and no
 * surprise. */
static void cli_profile_show(const struct place *place)
{
    if (getenv("DISPLAY") == NULL && getenv("WAYLAND_DISPLAY") == NULL) {
        return;
    }
    char path[sizeof(place->folder) + sizeof(place->name) + 8];
    snprintf(path, sizeof(path), "%s/%s.svg", place->folder, place->name);
    char *const arguments[] = {(char *)(uintptr_t) "xdg-open", path, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child;
    (void)posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
}

static mr_status cli_profile_draw(const struct mr_flame *flame,
                                  const struct mr_flame_drawing *drawing, const struct place *place,
                                  FILE *to, struct mr_error *ret_error)
{
    mr_flame_print_stages(flame, drawing->colour == MR_FLAME_BY_CHANGE, to);
    size_t len;
    MR_FREED char *picture = mr_flame_svg(flame, drawing, &len);
    MR_TRY(cli_profile_write_file(place, ".svg", picture, len, to, ret_error));
    cli_profile_show(place);
    return MR_OK;
}

static mr_status fetch(const struct mr_http_options *server, const struct mr_ask_profile *wish,
                       const char *form, char **ret_body, size_t *ret_len,
                       struct mr_error *ret_error)
{
    uint32_t seconds = wish->seconds;
    if (seconds == 0 && !wish->heap) {
        seconds = SECONDS_DEFAULT;
    }
    char path[128];
    int len = snprintf(path, sizeof(path), "/pprof/%s/%s?seconds=%" PRIu32, kinds[wish->heap].word,
                       form, seconds);
    if (wish->frequency != 0) {
        snprintf(path + len, sizeof(path) - (size_t)len, "&frequency=%" PRIu32, wish->frequency);
    }
    struct mr_client_answer answer;
    MR_TRY(mr_client_ask(server, path, NULL, (long)seconds * 1000 + GRACE_MS, &answer, ret_error));
    if (answer.http_status == MR_HTTP_OK) {
        *ret_body = answer.body;
        *ret_len = answer.len;
        return MR_OK;
    }
    MR_FREED char *body = answer.body;
    if (answer.http_status == MR_HTTP_NOT_FOUND) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "millrace serves no profiles; set endpoints = true under [profiling] and "
                       "start it again");
    }
    return mr_client_refusal(path, answer.http_status, body, ret_error);
}

static mr_status write_graph(bool heap, const char *folded, size_t len, const struct place *place,
                             FILE *to, struct mr_error *ret_error)
{
    struct mr_flame *flame = mr_flame_new();
    mr_flame_add_folded(flame, MR_FLAME_BEFORE, folded, len);
    struct mr_flame_drawing drawing = {.title = kinds[heap].title, .unit = kinds[heap].unit};
    mr_status status = cli_profile_write_file(place, ".folded", folded, len, to, ret_error);
    status = MR_THEN(status, cli_profile_draw(flame, &drawing, place, to, ret_error));
    mr_flame_free(flame);
    return status;
}

mr_status mr_ask_profile(const struct mr_http_options *server, const struct mr_ask_profile *wish,
                         FILE *to, struct mr_error *ret_error)
{
    struct place place;
    MR_TRY(choose_place(wish->out, kinds[wish->heap].word, &place, ret_error));
    MR_FREED char *body = NULL;
    size_t len = 0;
    MR_TRY(fetch(server, wish, place.is_pprof ? "report" : "folded", &body, &len, ret_error));
    return place.is_pprof ? cli_profile_write_file(&place, ".pb.gz", body, len, to, ret_error)
                          : write_graph(wish->heap, body, len, &place, to, ret_error);
}

static mr_status cli_profile_add_file(const char *path, struct mr_flame *flame, mr_flame_side side,
                                      struct mr_error *ret_error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return mr_fail(ret_error, MR_ERR_USAGE, "\"%s\" can't be read: %s", path, strerror(errno));
    }
    MR_FREED char *line = NULL;
    size_t size = 0;
    ssize_t len;
    while ((len = getline(&line, &size, file)) > 0) {
        mr_flame_add_folded(flame, side, line, (size_t)len);
    }
    fclose(file);
    if (mr_flame_total(flame, side) == 0) {
        return mr_fail(ret_error, MR_ERR_USAGE,
                       "\"%s\" holds no folded stacks, as millrace profile writes them into "
                       ".folded; go tool pprof -diff_base compares .pb.gz",
                       path);
    }
    return MR_OK;
}

mr_status mr_ask_profile_diff(const char *before, const char *after, const char *out, FILE *to,
                              struct mr_error *ret_error)
{
    struct place place;
    MR_TRY(choose_place(out, "diff", &place, ret_error));
    struct mr_flame *flame = mr_flame_new();
    mr_status status = cli_profile_add_file(before, flame, MR_FLAME_BEFORE, ret_error);
    status = MR_THEN(status, cli_profile_add_file(after, flame, MR_FLAME_AFTER, ret_error));
    if (status == MR_OK) {
        char subtitle[400];
        snprintf(subtitle, sizeof(subtitle), "red grew, blue shrank, from %.150s to %.150s", before,
                 after);
        struct mr_flame_drawing drawing = {.title = "What changed",
                                           .subtitle = subtitle,
                                           .side = MR_FLAME_AFTER,
                                           .colour = MR_FLAME_BY_CHANGE};
        status = cli_profile_draw(flame, &drawing, &place, to, ret_error);
    }
    mr_flame_free(flame);
    return status;
}
