#include "event/silence.h"

#include <stdatomic.h>

#include "base/thread.h"

struct mr_silence {
    pthread_mutex_t lock;
    char *json;
    _Atomic bool owes;
};

struct mr_silence *mr_silence_new(void)
{
    struct mr_silence *silence = MR_NEW(struct mr_silence);
    pthread_mutex_init(&silence->lock, NULL);
    return silence;
}

void mr_silence_free(struct mr_silence *silence)
{
    if (silence != NULL) {
        pthread_mutex_destroy(&silence->lock);
        free(silence->json);
        free(silence);
    }
}

void mr_silence_set(struct mr_silence *silence, char *json)
{
    if (silence == NULL) {
        free(json);
        return;
    }
    MR_HOLD(&silence->lock);
    if (silence->json == NULL || strcmp(silence->json, json) != 0) {
        atomic_store(&silence->owes, true);
    }
    free(silence->json);
    silence->json = json;
}

void mr_silence_take(struct mr_silence *silence, const char *json)
{
    if (silence == NULL) {
        return;
    }
    MR_HOLD(&silence->lock);
    silence->json = silence->json == NULL ? MR_STRDUP(json) : silence->json;
}

bool mr_silence_owes(const struct mr_silence *silence)
{
    return atomic_load_explicit(&silence->owes, memory_order_relaxed);
}

char *mr_silence_text(struct mr_silence *silence)
{
    if (silence == NULL) {
        return NULL;
    }
    MR_HOLD(&silence->lock);
    atomic_store(&silence->owes, false);
    return silence->json == NULL ? NULL : MR_STRDUP(silence->json);
}
