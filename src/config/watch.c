/* secrets.watch: files with secrets are looked at although nobody asks for the secrets, so that the
 * log says early that they were taken. */

#include "base/ticker.h"
#include "config/build.h"

struct mr_secrets_watch {
    struct mr_ticker ticker;
    int interval_ms;
    struct mr_secret_files files;
};

static int look(void *context)
{
    struct mr_secrets_watch *watch = context;
    for (uint32_t i = 0; i < watch->files.count; i++) {
        (void)mr_secret_look(watch->files.items[i].secret);
    }
    return watch->interval_ms;
}

mr_status mr_secrets_watch_start(const struct mr_config *config, struct mr_secrets_watch **ret,
                                 struct mr_error *ret_error)
{
    *ret = NULL;
    if (config->values.secrets_watch == 0 || config->kept.files.count == 0) {
        return MR_OK;
    }
    struct mr_secrets_watch *watch = MR_NEW(struct mr_secrets_watch);
    watch->interval_ms = (int)config->values.secrets_watch;
    watch->files = config->kept.files;
    mr_ticker_init(&watch->ticker, "mr-secrets", look, watch);
    *ret = watch;
    return mr_ticker_start(&watch->ticker, watch->interval_ms, ret_error);
}

void mr_secrets_watch_stop(struct mr_secrets_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    mr_ticker_stop(&watch->ticker);
    mr_ticker_done(&watch->ticker);
    free(watch);
}
