/* reload.watch: files with secrets are looked at although nothing asks for the secrets. */
#include "base/ticker.h"
#include "options/secrets.h"

struct mr_secrets_watch {
    struct mr_ticker ticker;
    int interval_ms;
    const struct mr_secret_files *files;
};

static int watch_look(void *context)
{
    struct mr_secrets_watch *watch = context;
    for (uint32_t i = 0; i < watch->files->count; i++) {
        (void)mr_secret_look(watch->files->items[i].secret);
    }
    return watch->interval_ms;
}

mr_status mr_secrets_watch_start(const struct mr_secret_files *files, uint32_t interval_ms,
                                 struct mr_secrets_watch **ret, struct mr_error *ret_error)
{
    bool is_any = MR_ANY(file, files->items, files->count, file->path != NULL);
    *ret = NULL;
    if (interval_ms == 0 || !is_any) {
        return MR_OK;
    }
    struct mr_secrets_watch *watch = MR_NEW(struct mr_secrets_watch);
    watch->interval_ms = (int)interval_ms;
    watch->files = files;
    mr_ticker_init(&watch->ticker, "mr-secrets", watch_look, watch);
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
