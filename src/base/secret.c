#include "base/secret.h"

#include "base/thread.h"

struct mr_secret {
    pthread_mutex_t lock;
    char *text;
    mr_secret_fn hear;
    void *context;
    mr_secret_look_fn look; /* these two: set before others use it */
    void *keeper;
};

struct mr_secret *mr_secret_new(char *text)
{
    struct mr_secret *secret = MR_NEW(struct mr_secret);
    pthread_mutex_init(&secret->lock, NULL);
    secret->text = text;
    return secret;
}

void mr_secret_forget(char *text)
{
    if (text != NULL) {
        explicit_bzero(text, strlen(text));
    }
    free(text);
}

void mr_secret_free(struct mr_secret *secret)
{
    if (secret == NULL) {
        return;
    }
    pthread_mutex_destroy(&secret->lock);
    mr_secret_forget(secret->text);
    free(secret);
}

void mr_secret_keep(struct mr_secret *secret, mr_secret_look_fn look, void *context)
{
    secret->look = look;
    secret->keeper = context;
}

bool mr_secret_look(struct mr_secret *secret)
{
    return secret != NULL && secret->look != NULL && secret->look(secret->keeper);
}

char *mr_secret_take(struct mr_secret *secret)
{
    if (secret == NULL) {
        return NULL;
    }
    (void)mr_secret_look(secret);
    MR_HOLD(&secret->lock);
    return MR_STRDUP(secret->text);
}

bool mr_secret_change(struct mr_secret *secret, const char *text)
{
    MR_HOLD(&secret->lock);
    bool differs = strcmp(secret->text, text) != 0;
    if (differs) {
        mr_secret_forget(secret->text);
        secret->text = MR_STRDUP(text);
        if (secret->hear != NULL) {
            secret->hear(secret->context, secret->text);
        }
    }
    return differs;
}

void mr_secret_listen(struct mr_secret *secret, mr_secret_fn hear, void *context)
{
    if (secret == NULL) {
        return;
    }
    MR_HOLD(&secret->lock);
    secret->hear = hear;
    secret->context = context;
    if (hear != NULL) {
        hear(context, secret->text);
    }
}
