#include "convert/convert.h"

#include "base/file.h"
#include "cli/cli.h"
#include "daemon/daemon.h"

/* The file's text, to be wiped and freed by the caller; NULL: it can't be read, and standard error
 * says so. */
static char *read_input(const char *path, const char *name, size_t *ret_len)
{
    const char *reason;
    char *text = mr_file_read(strcmp(path, "-") == 0 ? NULL : path, ret_len, &reason);
    if (text == NULL) {
        fprintf(stderr, "millrace: %s can't be read: %s\n", name, reason);
    }
    return text;
}

mr_status mr_cli_convert(const char *path, FILE *to)
{
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    size_t len;
    MR_FREED char *text = read_input(path, name, &len);
    if (text == NULL) {
        return MR_ERR_USAGE;
    }
    mr_status status = mr_convert(name, text, len, to, stderr);
    explicit_bzero(text, len);
    return status;
}

static mr_status read_offset(const char *path, struct mr_handed_over *ret)
{
    size_t len;
    MR_FREED char *text = read_input(path, path, &len);
    if (text == NULL) {
        return MR_ERR_USAGE;
    }
    char reason[256];
    if (mr_convert_offset(text, len, ret, reason, sizeof(reason))) {
        return MR_OK;
    }
    fprintf(stderr, "millrace: --after-offset: %s: %s\n", path, reason);
    return MR_ERR_USAGE;
}

mr_status mr_cli_take_over(struct mr_config *config, const char *path)
{
    MR_TRY(read_offset(path, &config->daemon->pipeline.handed_over));
    if (config->source.key_order == MR_KEY_ORDER_AUTO) {
        config->source.key_order = MR_KEY_ORDER_INDEX;
        mr_log(
            MR_LOG_WARN, "key_order_taken",
            "keys have their columns in the order of their index, as Debezium's have, because of "
            "--after-offset: set key_order = \"index\", so that this stays when the option goes");
    }
    return MR_OK;
}
