#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"

mr_status mr_cli_record(const struct mr_config *config, const struct mr_record_options *options)
{
    int signal_fd = mr_cli_signals();
    struct mr_error error = {0};
    mr_status status = mr_record_stream(&config->source, options, signal_fd, stderr, &error);
    if (status != MR_OK) {
        fprintf(stderr, "millrace: %s\n", error.text);
    }
    close(signal_fd);
    return status;
}
