/* secrets.watch: files with secrets are read again, and who uses a secret meets the new one. */

#include "base/ticker.h"
#include "config/build.h"

struct mr_secrets_watch {
    struct mr_ticker ticker;
    int interval_ms;
    struct mr_secret_files files;
    struct {
        struct mr_sha256_short seen; /* what it held at the last look */
        bool is_faulty;              /* it could not be read then */
    } looks[MR_ARRAY_LEN(((struct mr_secret_files *)NULL)->items)];
};

static void tell_fault(struct mr_secrets_watch *watch, uint32_t number, const char *fault)
{
    if (!watch->looks[number].is_faulty) {
        mr_log(
            MR_LOG_WARN, "secret_unreadable", fault,
            MR_LOG_STR("remedy", "put the secret there again; until then the one before is used"));
    }
    watch->looks[number].is_faulty = true;
}

/* A new text counts once two looks have found it: before, it may be half written. */
static void look_at(struct mr_secrets_watch *watch, uint32_t number)
{
    const struct mr_secret_file *file = &watch->files.items[number];
    struct mr_error error;
    char *text = mr_secret_file_read(file->path, file->what, true, &error);
    if (text == NULL) {
        tell_fault(watch, number, error.text);
        return;
    }
    struct mr_sha256_short now = mr_sha256_short(mr_slice_of(text));
    bool stays = strcmp(now.text, watch->looks[number].seen.text) == 0;
    watch->looks[number].seen = now;
    watch->looks[number].is_faulty = false;
    if (stays && mr_secret_change(file->secret, text)) {
        mr_log(MR_LOG_INFO, "secret_changed",
               "a file with a secret has a new one, which is used from now on",
               MR_LOG_STR("secret", file->what), MR_LOG_STR("file", file->path));
    }
    mr_secret_forget(text);
}

static int look(void *context)
{
    struct mr_secrets_watch *watch = context;
    for (uint32_t i = 0; i < watch->files.count; i++) {
        look_at(watch, i);
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
