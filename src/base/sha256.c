#include "base/sha256.h"

#include <openssl/evp.h>
#include <pthread.h>

/* A thread's own, so that a value costs no memory and no lock; freed with the thread. */
static pthread_key_t contexts;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void context_free(void *context)
{
    EVP_MD_CTX_free(context);
}

static void make_key(void)
{
    int failed = pthread_key_create(&contexts, context_free);
    MR_ASSERT(failed == 0);
}

static EVP_MD_CTX *context_of_thread(void)
{
    pthread_once(&once, make_key);
    EVP_MD_CTX *context = pthread_getspecific(contexts);
    if (context == NULL) {
        context = EVP_MD_CTX_new();
        MR_ASSERT(context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1);
        pthread_setspecific(contexts, context);
    }
    return context;
}

void mr_sha256(mr_slice first, mr_slice second, uint8_t ret[MR_SHA256_BYTES])
{
    EVP_MD_CTX *context = context_of_thread();
    bool good = EVP_DigestInit_ex(context, NULL, NULL) == 1 &&
                EVP_DigestUpdate(context, first.data, first.len) == 1 &&
                EVP_DigestUpdate(context, second.data, second.len) == 1 &&
                EVP_DigestFinal_ex(context, ret, NULL) == 1;
    MR_ASSERT(good);
}

struct mr_sha256_short mr_sha256_short(mr_slice bytes)
{
    uint8_t hash[MR_SHA256_BYTES];
    struct mr_sha256_short ret;
    mr_sha256(bytes, (mr_slice){0}, hash);
    for (size_t i = 0; i < MR_SHA256_BYTES / 2; i++) {
        snprintf(ret.text + 2 * i, 3, "%02x", hash[i]);
    }
    return ret;
}
