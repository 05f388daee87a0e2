/* Which command it is, and the exit status; the commands are in cli/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "cli/arguments.h"
#include "cli/help.h"
#include "cli/show.h"
#include "config/confinement.h"
#include "daemon/daemon.h"
#include "fleet/fleet.h"
#include "terminal/runbook.h"
#include "terminal/terminal.h"

static int end_with(mr_status status, const struct mr_error *error)
{
    return mr_terminal_end("millrace", status, error);
}

static mr_status src_main_record(const struct mr_config *config,
                                 const struct mr_record_options *options,
                                 struct mr_error *ret_error)
{
    int signal_fd = mr_thread_signals();
    mr_status status = mr_record_stream(&config->source, options, signal_fd, stderr, ret_error);
    close(signal_fd);
    return status;
}

static mr_status move(struct mr_config *config, const struct mr_move_wish *wish,
                      struct mr_error *ret_error)
{
    int signal_fd = mr_thread_signals();
    mr_status status = mr_cli_move(config, wish, signal_fd, stdout, ret_error);
    close(signal_fd);
    return status;
}

static int fleet(const struct mr_arguments *arguments)
{
    const char *word = arguments->files[0];
    mr_fleet_fn *command = strcmp(word, "render") == 0 ? mr_fleet_render
                           : strcmp(word, "plan") == 0 ? mr_fleet_plan
                                                       : mr_fleet_apply;
    const struct mr_fleet_options options = {
        .load = mr_daemon_load_elsewhere,
        .path = arguments->config_path == NULL ? "fleet.toml" : arguments->config_path,
        .folder = command == mr_fleet_render ? arguments->profile.out : arguments->files[1],
        .helm = arguments->helm,
        .checks = arguments->checks,
        .accepts = arguments->accepts_position};
    struct mr_error error = {0};
    int code = 0;
    mr_log_see = mr_runbook_see;
    mr_status status = command(&options, stdout, &code, &error);
    return status == MR_OK ? code : end_with(status, &error);
}

static int recover(const struct mr_config *config, const struct mr_arguments *arguments,
                   struct mr_recovery *recovery)
{
    struct mr_error error = {0};
    int code = 0;
    mr_status status =
        mr_cli_recover(config, recovery, arguments->choose, arguments->yes, &code, &error);
    return status == MR_OK ? code : end_with(status, &error);
}

/* Of the millrace to ask. */
static mr_status take_address(struct mr_config *config, const struct mr_arguments *arguments)
{
    struct mr_error error;
    if (arguments->address == NULL) {
        return MR_OK;
    }
    mr_status status = mr_address_parse(arguments->address, &config->http.address, &error);
    if (status != MR_OK) {
        fprintf(stderr, "millrace: --address: %s\n", error.text);
    }
    config->http.enabled = status == MR_OK;
    return status;
}

static int run_command(const struct mr_arguments *arguments)
{
    struct mr_config *config = NULL;
    struct mr_error error = {0};
    struct mr_recovery recovery = {0};
    if (arguments->command == MR_COMMAND_RECOVER &&
        mr_cli_recover_begin(arguments->config_path, &recovery, &error) != MR_OK) {
        return end_with(error.status, &error);
    }
    mr_status status = mr_daemon_load(arguments->config_path, &config);
    mr_config_print_problems(config, stderr);
    if (status != MR_OK) {
        const struct mr_problems *problems = &config->problems;
        mr_runbook_print_see(stderr, "see ",
                             problems->count == 0 ? "" : problems->items[problems->count - 1].text,
                             status);
    } else {
        mr_log_configure(config->log_level, config->log_format);
        config->daemon->pipeline.stop_after_events = arguments->stop_after;
        config->daemon->pipeline.skip_commit_lsn = arguments->skip_commit_lsn;
        status = mr_programs_start(&config->programs, &error);
        if (status == MR_OK && arguments->offset_path != NULL) {
            status = mr_cli_take_over(config, arguments->offset_path);
            config->source.slot_must_exist = true;
        }
    }
    if (status == MR_OK && arguments->command == MR_COMMAND_CHECK) {
        status = mr_check(config, stdout);
    } else if (status == MR_OK && arguments->command == MR_COMMAND_RECORD) {
        status = src_main_record(config, &arguments->record, &error);
    } else if (status == MR_OK && arguments->command == MR_COMMAND_MOVE) {
        status = move(config, &arguments->move, &error);
    } else if (status == MR_OK && arguments->command == MR_COMMAND_RECOVER) {
        int code = recover(config, arguments, &recovery);
        mr_config_free(config);
        return code;
    } else if (status == MR_OK) {
        status = mr_daemon_run(config, &error);
        error.text[0] = '\0'; /* the log has it */
    }
    mr_config_free(config);
    return end_with(status, &error);
}

/* Asks a running one. */
static int src_main_ask(const struct mr_arguments *arguments, const struct mr_http_options *server)
{
    struct mr_error error = {0};
    switch (arguments->command) {
    case MR_COMMAND_HEALTH:
        return mr_ask_health(server, arguments->ready, stdout) ? 0 : 1;
    case MR_COMMAND_TOP:
        mr_ask_top(server, stdout);
        return 0;
    case MR_COMMAND_PROFILE:
        return end_with(mr_ask_profile(server, &arguments->profile, stdout, &error), &error);
    case MR_COMMAND_SNAPSHOT:
        return end_with(mr_ask_snapshots(server, &arguments->snapshot, stdout, &error), &error);
    case MR_COMMAND_RELOAD:
        return end_with(
            mr_ask_reload(server, arguments->config_path, arguments->dry_run, stdout, &error),
            &error);
    default:
        return end_with(mr_ask_status(server, arguments->json, stdout, &error), &error);
    }
}

static int ask_command(const struct mr_arguments *arguments)
{
    struct mr_config *config = NULL;
    struct mr_error error = {0};
    if (arguments->diff) { /* asks nobody */
        return end_with(mr_ask_profile_diff(arguments->files[0], arguments->files[1],
                                            arguments->profile.out, stdout, &error),
                        &error);
    }
    mr_status status = mr_config_load_http(arguments->config_path, &config);
    mr_config_print_problems(config, stderr);
    status = status == MR_OK ? take_address(config, arguments) : status;
    int exit_code =
        status == MR_OK ? src_main_ask(arguments, &config->http) : mr_status_exit_code(status);
    mr_config_free(config);
    return exit_code;
}

int main(int argc, char **argv)
{
    mr_terminal_begin("millrace");
    struct mr_arguments arguments = {0};
    mr_status status = mr_arguments_parse(argc, argv, &arguments);
    if (status != MR_OK) {
        return mr_status_exit_code(status);
    }
    switch (arguments.command) {
    case MR_COMMAND_HELP:
        return mr_status_exit_code(mr_help_print_topic(arguments.topic, stdout));
    case MR_COMMAND_REFERENCE:
        return mr_status_exit_code(mr_reference_print(arguments.topic, stdout));
    case MR_COMMAND_FLEET:
        return fleet(&arguments);
    case MR_COMMAND_VERIFY:
        return mr_cli_verify(argv);
    case MR_COMMAND_CONVERT:
        return mr_status_exit_code(mr_cli_convert(arguments.files[0], stdout));
    case MR_COMMAND_STATUS:
    case MR_COMMAND_TOP:
    case MR_COMMAND_HEALTH:
    case MR_COMMAND_PROFILE:
    case MR_COMMAND_RELOAD:
    case MR_COMMAND_SNAPSHOT:
        return ask_command(&arguments);
    default:
        return run_command(&arguments);
    }
}
