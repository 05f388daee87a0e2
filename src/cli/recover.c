/* The coordinator. The child is a plain `millrace run` whose snapshot.mode is what the choice
 * needs: what may begin where, it decides. So whatever is broken off goes on the next time: the
 * stored record says how far all is. */
#include "cli/recover.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "ask/client.h"
#include "base/object.h"
#include "base/thread.h"
#include "cli/show.h"
#include "daemon/daemon.h"
#include "terminal/terminal.h"

enum {
    LOOK_MS = 200,
    STORED_LOOKS = 300,    /* for the record of the gap: a minute */
    NAMES_A_REQUEST = 100, /* POST /api/snapshot takes no more */
    CHOICE_MAX = 32,
};

/* ---- the child ---- */

static _Noreturn void child_main(const char *path, int choice_fd)
{
    char mode;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);       /* Ctrl-C is for the one who asked, who stops us in order */
    mr_thread_signals(); /* a stop that comes early waits for the run */
    if (read(choice_fd, &mode, 1) != 1) {
        _exit(0);
    }
    close(choice_fd);
    struct mr_config *config = NULL;
    struct mr_error error = {0};
    mr_status status = mr_daemon_load_mending(path, mode, &config);
    if (status == MR_OK) {
        mr_log_configure(config->log_level, config->log_format);
        status = mr_programs_start(&config->programs, &error);
    }
    if (status == MR_OK) {
        status = mr_daemon_run(config, &error);
    } else {
        mr_config_print_problems(config, stderr);
    }
    mr_config_free(config);
    exit(mr_status_exit_code(status));
}

/* A copy, with the secrets that variables hold. */
static char **environment_copy(void)
{
    uint32_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **copy = MR_NEW_ARRAY(char *, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = MR_STRDUP(environ[i]);
    }
    return copy;
}

static void environment_free(char **environment)
{
    for (char **one = environment; *one != NULL; one++) {
        mr_secret_forget(*one);
    }
    free(environment);
}

mr_status mr_cli_recover_begin(const char *path, struct mr_recovery *ret,
                               struct mr_error *ret_error)
{
    int fds[2];
    pid_t pid = -1;
    if (path == NULL) {
        return mr_fail(ret_error, MR_ERR_USAGE,
                       "recover wants the configuration file: add --config FILE");
    }
    if (pipe(fds) != 0 || (pid = fork()) < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no process to recover with: %s", strerror(errno));
    }
    if (pid == 0) {
        close(fds[1]);
        child_main(path, fds[0]);
    }
    close(fds[0]);
    *ret = (struct mr_recovery){.pid = pid, .choice_fd = fds[1], .environment = environment_copy()};
    return MR_OK;
}

/* ---- what is chosen ---- */

/* What is done for whom. */
struct doing {
    struct mr_recover *recover;
    struct mr_recovery *recovery;
    int signal_fd;
    bool is_noted;  /* it keeps a gap: something was left out */
    bool has_ended; /* the child, by itself */
    int code;       /* and its exit code */
};

/* MR_AGAIN: somebody has interrupted it. */
static mr_status wait_a_moment(const struct doing *doing, struct mr_error *ret_error)
{
    struct pollfd fd = {.fd = doing->signal_fd, .events = POLLIN};
    return poll(&fd, 1, LOOK_MS) > 0 ? mr_fail(ret_error, MR_AGAIN, "interrupted") : MR_OK;
}

static bool child_has_ended(struct doing *doing)
{
    int status;
    if (!doing->has_ended && waitpid(doing->recovery->pid, &status, WNOHANG) != 0) {
        doing->has_ended = true;
        doing->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return doing->has_ended;
}

/* It says so itself: the slot is also held by those who look what it has, and by a copy's end. No
 * answer is none yet. */
static bool is_streaming(const struct mr_recover *recover, bool *ret_is_copied)
{
    MR_OBJECT cJSON *status = NULL;
    struct mr_error unused;
    if (mr_client_object(&recover->config->http, "/status", NULL, &status, &unused) != MR_OK) {
        return false;
    }
    const char *copy = mr_show_word(status, "snapshot.state");
    *ret_is_copied = strcmp(copy, "done") == 0;
    return mr_show_is(status, "source.connected") && strcmp(copy, "running") != 0;
}

/* MR_END: the child has ended. A stream that could go on after all, because somebody has accepted
 * the gap since the look, copies nothing. */
static mr_status await_stream(struct doing *doing, enum mr_way way, struct mr_error *ret_error)
{
    bool is_copied = false;
    while (!is_streaming(doing->recover, &is_copied)) {
        if (child_has_ended(doing)) {
            return MR_END;
        }
        MR_TRY(wait_a_moment(doing, ret_error));
    }
    return way != MR_WAY_EVERYTHING || is_copied
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_TRANSIENT,
                         "nothing was copied: somebody has had the stream go on since recover "
                         "looked; run it again");
}

/* `*ret_is`: what the answer says of that name. */
static mr_status ask_child(const struct doing *doing, const char *path, const char *text,
                           const char *name, bool *ret_is, struct mr_error *ret_error)
{
    MR_OBJECT cJSON *answer = NULL;
    MR_TRY(mr_client_object(&doing->recover->config->http, path, text, &answer, ret_error));
    bool says = cJSON_IsBool(mr_object_at(answer, name));
    *ret_is = mr_show_is(answer, name);
    return says ? MR_OK
                : mr_fail(ret_error, MR_ERR_TRANSIENT,
                          "the millrace that was started does not keep the gap, and its log says "
                          "why; run it again");
}

/* Tells of up to so many tables from `from` on, and of what was done (NULL: nothing yet). */
static mr_status recover_note(struct doing *doing, uint32_t from, const char *settled,
                              struct mr_error *ret_error)
{
    const struct mr_recover_tables *list = &doing->recover->tables;
    MR_OBJECT cJSON *wish = cJSON_CreateObject();
    cJSON_AddStringToObject(wish, "type", "gap");
    cJSON *names = cJSON_AddArrayToObject(wish, "tables");
    for (uint32_t i = from; i < list->count && i < from + NAMES_A_REQUEST; i++) {
        MR_TEXT(name);
        mr_text_format(&name, "%s.%s", list->items[i].schema, list->items[i].table);
        cJSON_AddItemToArray(names, cJSON_CreateString(name.data));
    }
    if (settled != NULL) {
        cJSON_AddStringToObject(wish, "settled", settled);
    }
    MR_FREED char *text = cJSON_PrintUnformatted(wish);
    return ask_child(doing, "/api/snapshot", text, "noted", &doing->is_noted, ret_error);
}

/* Until the record is stored that has it, if there is one to keep. */
static mr_status recover_keep(struct doing *doing, const char *settled, struct mr_error *ret_error)
{
    for (uint32_t from = 0; from == 0 || from < doing->recover->tables.count;
         from += NAMES_A_REQUEST) {
        MR_TRY(recover_note(doing, from, settled, ret_error));
    }
    bool is_stored = !doing->is_noted;
    for (int looks = 0; looks < STORED_LOOKS && !is_stored; looks++) {
        MR_TRY(wait_a_moment(doing, ret_error));
        MR_TRY(ask_child(doing, "/api/snapshot/outcome", NULL, "stored", &is_stored, ret_error));
    }
    return is_stored
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_TRANSIENT,
                         "the record of the gap could not be stored within a minute; run it again");
}

/* By millrace-verify, whose lines are for the person. MR_AGAIN: somebody has interrupted it. */
static mr_status prove_and_repair(const struct doing *doing, int *ret_code,
                                  struct mr_error *ret_error)
{
    const char *const arguments[] = {"millrace-verify",
                                     "--repair",
                                     "--yes",
                                     "--gap",
                                     "--config",
                                     doing->recover->config->path,
                                     NULL};
    int pid;
    int wait_status;
    mr_status status = MR_OK;
    MR_TRY(mr_cli_verify_start(arguments, doing->recovery->environment, &pid, NULL, ret_error));
    while (waitpid(pid, &wait_status, WNOHANG) == 0 && status == MR_OK) {
        status = wait_a_moment(doing, ret_error);
    }
    if (status != MR_OK) {
        kill(pid, SIGTERM);
        waitpid(pid, &wait_status, 0);
        return status;
    }
    *ret_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    return MR_OK;
}

static mr_status recover_close_gap(struct doing *doing, enum mr_way way, struct mr_error *ret_error)
{
    MR_TRY(await_stream(doing, way, ret_error));
    if (way == MR_WAY_DIFFERING) {
        MR_TRY(recover_keep(doing, NULL, ret_error));
        MR_TRY(prove_and_repair(doing, &doing->code, ret_error));
    }
    /* What is proved in part may hide what differs. */
    return doing->code == MR_VERIFY_CODE_EQUAL ? recover_keep(doing, mr_ways[way], ret_error)
                                               : MR_OK;
}

/* In order: what was read is delivered, and where all is is stored. */
static void stop_child(struct doing *doing)
{
    int code = doing->code;
    struct signalfd_siginfo info;
    do {
        if (!doing->has_ended) {
            kill(doing->recovery->pid, SIGTERM); /* a second one leaves it no time */
        }
        while (read(doing->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        }
        while (!child_has_ended(doing) && wait_a_moment(doing, NULL) == MR_OK) {
        }
    } while (!doing->has_ended);
    doing->code = code != 0 ? code : doing->code;
}

static void print_command(const struct mr_recover *recover, const char *what)
{
    MR_FREED char *path = mr_show_argument(recover->config->path);
    printf("  millrace recover --config %s --choose %s --yes\n", path, what);
}

static mr_status do_it(struct mr_recover *recover, struct mr_recovery *recovery, enum mr_way way,
                       int signal_fd, int *ret_code, struct mr_error *ret_error)
{
    struct doing doing = {.recover = recover, .recovery = recovery, .signal_fd = signal_fd};
    const char mode = way != MR_WAY_EVERYTHING   ? MR_MODE_ACCEPT_GAP
                      : recover->loss[0] == '\0' ? MR_MODE_ALWAYS
                                                 : MR_MODE_WHEN_NEEDED;
    if (write(recovery->choice_fd, &mode, 1) != 1) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "the process to recover with has ended");
    }
    mr_status status = recover_close_gap(&doing, way, ret_error);
    stop_child(&doing);
    *ret_code = doing.code;
    if (status == MR_END && doing.code != 0) {
        printf("millrace has ended with exit code %d; its log says why.\n", doing.code);
        return MR_OK;
    }
    if (status == MR_AGAIN || status == MR_END) { /* we, or our millrace alone, in order */
        puts("Interrupted. Run it again: it goes on where it was.");
        *ret_code = mr_status_exit_code(MR_ERR_HISTORY);
        return MR_OK;
    }
    MR_TRY(status);
    bool is_unequal =
        doing.code == MR_VERIFY_CODE_IN_PART || doing.code == MR_VERIFY_CODE_DIFFERENT;
    puts(doing.code == 0 && !doing.is_noted
             ? "Done; there is no gap to keep. Start millrace as usual."
         : doing.code == 0 ? "Done, and kept in the state topic (\"gap\"). Start millrace as usual."
         : !is_unequal
             ? "The stream can go on, but not all is proved, as the lines above say: run it again."
             : "Not certainly equal, as the lines above say: the gap stays open. Where events "
               "are of an older\nform, start millrace, copy those tables (millrace snapshot TABLE) "
               "until millrace snapshot says\ndone, stop it, and run this again. Else copy "
               "everything, "
               "and have the consumers drop what is gone,\nor leave the gap:");
    if (is_unequal) {
        print_command(recover, mr_ways[MR_WAY_EVERYTHING]);
        print_command(recover, mr_ways[MR_WAY_GAP]);
    }
    return MR_OK;
}

/* A line from the terminal; false: there is none, or it was interrupted. */
static bool ask_person(int signal_fd, const char *question, char *line, int size)
{
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = signal_fd, .events = POLLIN}};
    setvbuf(stdin, NULL, _IONBF, 0); /* what is typed ahead stays where poll sees it */
    fputs(question, stdout);
    fflush(stdout);
    bool good = poll(fds, 2, -1) > 0 && fds[1].revents == 0 && fgets(line, size, stdin) != NULL;
    if (good) {
        line[strcspn(line, "\n")] = '\0';
    }
    return good;
}

static enum mr_way way_of(const char *word)
{
    enum mr_way way = 0;
    while (way < MR_WAYS && (word == NULL || strcmp(word, mr_ways[way]) != 0)) {
        way++;
    }
    return way;
}

/* MR_WAYS: none, or there is no yes to it. */
static enum mr_way choose(const struct mr_recover *recover, const char *choice, bool yes,
                          int signal_fd)
{
    bool may_ask = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    char line[CHOICE_MAX] = "";
    if (choice == NULL && may_ask && recover->steps[0] == '\0' &&
        ask_person(signal_fd, "Choose one (Enter: none): ", line, sizeof(line))) {
        choice = line;
    }
    enum mr_way way = way_of(choice);
    if (way < MR_WAYS && recover->refusals[way][0] != '\0') {
        printf("%s: not now: %s\n", mr_ways[way], recover->refusals[way]);
        way = MR_WAYS;
    } else if (way < MR_WAYS && !yes && may_ask) {
        char answer[CHOICE_MAX] = "";
        yes = ask_person(signal_fd, "Do it? yes or no: ", answer, sizeof(answer)) &&
              strcmp(answer, "yes") == 0;
    }
    return yes ? way : MR_WAYS;
}

/* The one that is started wants the address for itself. */
static mr_status find_address_free(const struct mr_http_options *http, struct mr_error *ret_error)
{
    struct mr_client_answer answer;
    if (mr_client_ask(http, "/healthz", NULL, 0, &answer, NULL) != MR_OK) {
        return MR_OK;
    }
    free(answer.body);
    bool is_own = answer.http_status == MR_HTTP_OK || answer.http_status == MR_HTTP_UNAVAILABLE;
    return mr_fail(ret_error, MR_ERR_CONFIG, "%s",
                   is_own ? "the millrace of this configuration still answers at http.address, so "
                            "it has failed and stays (pipeline.stay_up): stop it, and run this "
                            "again"
                          : "somebody else answers at http.address, which recover needs: another "
                            "pipeline's millrace, or another program (ss -ltnp). Give this "
                            "one another http.address, and run this again");
}

static mr_status recover_gap(struct mr_recover *recover, struct mr_recovery *recovery,
                             const char *choice, bool yes, int signal_fd, int *ret_code,
                             struct mr_error *ret_error)
{
    mr_recover_print(recover, stdout);
    if (!mr_recover_has_gap(recover) && choice == NULL) {
        puts("Nothing is seen to be missing: start millrace. If it ended with exit code 10, only a "
             "start\nfinds the reason (millrace help E-other-history): choose differing.");
        *ret_code = 0;
        return MR_OK;
    }
    enum mr_way way = choose(recover, choice, yes, signal_fd);
    if (way == MR_WAYS) {
        /* Each way, or the one that is chosen. */
        bool is_refused = MR_ALL(refusal, recover->refusals, MR_WAYS, (*refusal)[0] != '\0');
        enum mr_way chosen = way_of(choice);
        is_refused = is_refused || (chosen < MR_WAYS && recover->refusals[chosen][0] != '\0');
        if (recover->steps[0] != '\0') {
            puts("Nothing was changed.");
        } else if (is_refused) {
            MR_FREED char *path = mr_show_argument(recover->config->path);
            printf("Nothing was changed. What is missing, and the statement for it:\n"
                   "  millrace check --config %s\n",
                   path);
        } else {
            puts("Nothing was changed. To have it done:");
            print_command(recover, "WHAT");
        }
        *ret_code =
            mr_status_exit_code(mr_recover_has_gap(recover) || is_refused ? MR_ERR_HISTORY : MR_OK);
        return MR_OK;
    }
    const struct mr_http_options *http = &recover->config->http;
    const char *fault = !http->enabled ? "http is off (http.address is empty)"
                        : http->username == NULL && !mr_address_is_local(&http->address) &&
                                !mr_address_is_any(&http->address)
                            ? "http.address takes no commands (set http.username and "
                              "http.password, or an address of this machine)"
                        : !http->address.is_unix && http->address.port == 0
                            ? "http.address has port 0, which is another one each time (set one)"
                            : NULL;
    if (fault != NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "%s, and recover asks the millrace that it starts by HTTP", fault);
    }
    fflush(stdout);
    MR_TRY(find_address_free(http, ret_error));
    return do_it(recover, recovery, way, signal_fd, ret_code, ret_error);
}

mr_status mr_cli_recover(const struct mr_config *config, struct mr_recovery *recovery,
                         const char *choice, bool yes, int *ret_code, struct mr_error *ret_error)
{
    if (choice != NULL && way_of(choice) == MR_WAYS) {
        return mr_fail(ret_error, MR_ERR_USAGE,
                       "--choose wants differing, everything or gap, not \"%s\"", choice);
    }
    int signal_fd = mr_thread_signals();
    struct mr_recover recover;
    mr_status status =
        mr_recover_look(config, recovery->environment, signal_fd, &recover, ret_error);
    status = MR_THEN(status,
                     recover_gap(&recover, recovery, choice, yes, signal_fd, ret_code, ret_error));
    mr_recover_done(&recover);
    environment_free(recovery->environment);
    close(recovery->choice_fd);
    close(signal_fd);
    return status;
}
