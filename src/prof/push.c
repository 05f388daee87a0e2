#include "prof/push.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "prof/threads.h"

enum {
    TIMEOUT_MS = 20000,
    LAST_MOMENT_MS = 2000, /* what a stop waits for the server */
    URL_MAX = 2048,
    HTTP_GOOD_BEGIN = 200,
    HTTP_GOOD_END = 300,
};

struct job {
    uint8_t *packed; /* NULL: nothing waits */
    size_t len;
    int64_t start_ns, end_ns; /* wall clock */
    int64_t period_ns;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool running;
    const char *url;
    const char *name;
    bool is_failing; /* the log knows; the thread's */
    struct job waiting;
    bool stop;
    _Atomic int64_t give_up_ns; /* monotonic; 0: not yet */
    struct mr_push_counts counts;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* ---- the request ---- */

static mr_status check_url(const char *url, struct mr_error *ret_error)
{
    CURLU *parsed = curl_url();
    char *user = NULL;
    char *scheme = NULL;
    MR_ASSERT(parsed != NULL);
    bool good = curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                strlen(url) < URL_MAX / 2;
    bool has_secret = curl_url_get(parsed, CURLUPART_USER, &user, 0) == CURLUE_OK;
    curl_free(user);
    curl_free(scheme);
    curl_url_cleanup(parsed);
    if (has_secret) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "profiling.push_url holds a user name, and addresses are shown to people; "
                       "take it out, and let a proxy beside millrace add what the server wants");
    }
    return good ? MR_OK
                : mr_fail(ret_error, MR_ERR_CONFIG,
                          "profiling.push_url is no address of a server; it looks like "
                          "\"http://pyroscope:4040\"");
}

static void make_url(CURL *curl, const struct job *job, char *ret, size_t size)
{
    size_t len = strlen(state.url);
    while (len > 0 && state.url[len - 1] == '/') {
        len--;
    }
    char *name = curl_easy_escape(curl, state.name, 0);
    snprintf(ret, size,
             "%.*s/ingest?name=%s&from=%" PRId64 "&until=%" PRId64
             "&format=pprof&spyName=millrace&sampleRate=%" PRId64,
             (int)len, state.url, name == NULL ? "millrace" : name, job->start_ns, job->end_ns,
             job->period_ns > 0 ? 1000000000 / job->period_ns : 100);
    curl_free(name);
}

/* CURLOPT_XFERINFOFUNCTION, about once a second */
static int is_given_up(void *context, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    (void)context;
    (void)down_all;
    (void)down;
    (void)up_all;
    (void)up;
    int64_t give_up_ns = atomic_load(&state.give_up_ns);
    return give_up_ns != 0 && mr_monotonic_ns() > give_up_ns;
}

/* CURLOPT_WRITEFUNCTION: what the server says back is nobody's. */
static size_t ignore(char *bytes, size_t one, size_t len, void *context)
{
    (void)bytes;
    (void)context;
    return one * len;
}

/* Answers why it failed, in `reason`; "": it did not. */
static void send_job(const struct job *job, char *reason, size_t size)
{
    char url[URL_MAX];
    char error[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();
    MR_ASSERT(curl != NULL);
    make_url(curl, job, url, sizeof(url));
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/octet-stream");
    headers = curl_slist_append(headers, "Expect:");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, (const char *)job->packed);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)job->len);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_given_up);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    CURLcode code = curl_easy_perform(curl);
    long http_status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http_status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    reason[0] = '\0';
    if (code != CURLE_OK) {
        snprintf(reason, size, "%s", error[0] == '\0' ? curl_easy_strerror(code) : error);
    } else if (http_status < HTTP_GOOD_BEGIN || http_status >= HTTP_GOOD_END) {
        snprintf(reason, size, "it answers HTTP status %ld", http_status);
    }
}

/* A server that is away for a day is one line of the log. */
static void log_outcome(const char *reason)
{
    bool failed = reason[0] != '\0';
    if (failed && !state.is_failing) {
        char text[CURL_ERROR_SIZE + 200];
        snprintf(
            text, sizeof(text),
            "a profile was not taken by profiling.push_url: %s; later ones are tried, and this "
            "is said once",
            reason);
        mr_log(MR_LOG_WARN, "profile_not_pushed", text, MR_LOG_STR("url", state.url));
    } else if (!failed && state.is_failing) {
        mr_log(MR_LOG_INFO, "profile_pushed", "profiling.push_url takes profiles again");
    }
    state.is_failing = failed;
}

/* ---- the thread ---- */

static void *push_main(void *context)
{
    (void)context;
    prctl(PR_SET_NAME, "mr-push");
    mr_prof_thread_start(MR_PROF_PROFILER, "mr-push");
    pthread_mutex_lock(&state.lock);
    while (!state.stop || state.waiting.packed != NULL) {
        struct job job = state.waiting;
        if (job.packed == NULL) {
            pthread_cond_wait(&state.wake, &state.lock);
            continue;
        }
        state.waiting = (struct job){0};
        pthread_mutex_unlock(&state.lock);
        char reason[CURL_ERROR_SIZE + 32];
        send_job(&job, reason, sizeof(reason));
        free(job.packed);
        log_outcome(reason);
        pthread_mutex_lock(&state.lock);
        state.counts.sent += reason[0] == '\0';
        state.counts.failed += reason[0] != '\0';
    }
    pthread_mutex_unlock(&state.lock);
    mr_prof_thread_end();
    return NULL;
}

mr_status mr_push_start(const char *url, const char *name, struct mr_error *ret_error)
{
    MR_ASSERT(!state.running);
    MR_TRY(check_url(url, ret_error));
    state.url = url;
    state.name = name;
    state.stop = false;
    atomic_store(&state.give_up_ns, 0);
    int failed = mr_thread_create(&state.thread, push_main, NULL);
    if (failed != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "a thread for profiling.push_url can't be started: %s", strerror(failed));
    }
    state.running = true;
    return MR_OK;
}

void mr_push(const struct mr_profile *profile, uint8_t *packed, size_t len)
{
    if (!state.running) {
        free(packed);
        return;
    }
    pthread_mutex_lock(&state.lock);
    if (state.waiting.packed != NULL) {
        free(state.waiting.packed); /* the newest is worth most */
        state.counts.failed++;
    }
    state.waiting = (struct job){.packed = packed,
                                 .len = len,
                                 .start_ns = profile->start_wall_ns,
                                 .end_ns = profile->start_wall_ns + profile->duration_ns,
                                 .period_ns = profile->period};
    pthread_cond_signal(&state.wake);
    pthread_mutex_unlock(&state.lock);
}

void mr_push_stop(void)
{
    if (!state.running) {
        return;
    }
    atomic_store(&state.give_up_ns, mr_monotonic_ns() + LAST_MOMENT_MS * INT64_C(1000000));
    pthread_mutex_lock(&state.lock);
    state.stop = true;
    pthread_cond_signal(&state.wake);
    pthread_mutex_unlock(&state.lock);
    pthread_join(state.thread, NULL);
    state.running = false;
}

struct mr_push_counts mr_push_counts(void)
{
    pthread_mutex_lock(&state.lock);
    struct mr_push_counts counts = state.counts;
    pthread_mutex_unlock(&state.lock);
    return counts;
}
