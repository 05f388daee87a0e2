/* Any bytes as a configuration: accepted, or refused with at least one error whose line exists. */
#include <string.h>

#include "daemon/daemon.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *null;
    if (null == NULL) {
        null = fopen("/dev/null", "w");
    }
    uint32_t lines = 1;
    for (size_t i = 0; i < size; i++) {
        lines += data[i] == '\n';
    }
    struct mr_config *config = NULL;
    mr_status status = mr_daemon_load_text("fuzz.toml", (const char *)data, size, &config);
    MR_ASSERT(status == MR_OK || status == MR_ERR_CONFIG);
    MR_ASSERT((status == MR_OK) == (config->problems.errors == 0));
    for (uint32_t i = 0; i < config->problems.count; i++) {
        MR_ASSERT(config->problems.items[i].line <= lines);
        MR_ASSERT(config->problems.items[i].text[0] != 0);
    }
    mr_config_print_problems(config, null);
    mr_config_free(config);
    return 0;
}
