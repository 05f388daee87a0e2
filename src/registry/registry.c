#include "registry/registry.h"

#include <curl/curl.h>

#include "base/object.h"
#include "base/thread.h"

enum {
    ANSWER_MAX = 256 * 1024,
    HEADS_MAX = 64 * 1024, /* of all that stands before it; curl 7.88 keeps them all */
    TEXT_MAX = 512,
    WAIT_MS = 60000,
    ANSWER_MS = 10000,
    BACKOFF_MIN_MS = 100,
    INCOMPATIBLE = 409,
};

struct mr_registry {
    struct mr_registry_options options;
    struct mr_schemas *schemas; /* NULL: a check, which nothing ends */
    struct mr_standstill *standstill;
    CURL *curl; /* kept, and with it the connection */
    struct curl_slist *headers;
    pthread_t thread;
    bool started;
    bool takes_schema;   /* what is asked for is one */
    uint32_t url;        /* asked next */
    uint32_t backoff_ms; /* 0: the last question was answered */
};

struct answer {
    char *bytes;
    size_t len;
    size_t heads_len;
};

/* CURLOPT_WRITEFUNCTION */
static size_t registry_take_bytes(char *bytes, size_t one, size_t len, void *context)
{
    struct answer *answer = context;
    if (answer->len + len > ANSWER_MAX) {
        return 0;
    }
    memcpy(answer->bytes + answer->len, bytes, len);
    answer->len += len;
    return len;
}

/* CURLOPT_HEADERFUNCTION */
static size_t registry_take_head(char *bytes, size_t one, size_t len, void *context)
{
    (void)bytes, (void)one;
    struct answer *answer = context;
    answer->heads_len += len;
    return answer->heads_len > HEADS_MAX ? 0 : len;
}

/* CURLOPT_XFERINFOFUNCTION: not 0 ends the transfer. */
static int look_for_end(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    const struct mr_registry *registry = context;
    return registry->schemas != NULL && mr_schemas_ended(registry->schemas);
}

/* {"schema":"…"} */
static char *body_of(const struct mr_schema *schema)
{
    MR_OBJECT cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "schema", schema->text);
    return mr_object_text(object);
}

static CURL *connection_new(struct mr_registry *registry)
{
    const struct mr_registry_options *options = &registry->options;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL *curl = curl_easy_init();
    MR_ASSERT(curl != NULL);
    registry->headers =
        curl_slist_append(NULL, "Content-Type: application/vnd.schemaregistry.v1+json");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, registry->headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, registry_take_bytes);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, registry_take_head);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_for_end);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, registry);
    if (options->authority != NULL) {
        struct curl_blob trusted = {.data = (void *)(uintptr_t)options->authority,
                                    .len = strlen(options->authority),
                                    .flags = CURL_BLOB_COPY};
        curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &trusted);
    }
    return curl;
}

struct outcome {
    char *schema; /* NULL: it was not asked for, or there is none */
    int32_t id;   /* -1: none */
    long http;    /* status of the answer; 0: none came */
    char text[TEXT_MAX];
};

/* What an answer says: {"id":1}, {"schema":"…"}, or {"error_code":409,"message":"…"}. */
static void read_answer(const struct answer *answer, bool takes_schema, struct outcome *outcome)
{
    MR_OBJECT cJSON *parsed = cJSON_ParseWithLength(answer->bytes, answer->len);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(parsed, "id");
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(parsed, "message");
    if (outcome->http == 200 && cJSON_IsNumber(id) && id->valuedouble >= 0 &&
        id->valuedouble <= INT32_MAX && id->valuedouble == (double)id->valueint) {
        outcome->id = id->valueint;
    }
    const char *schema = mr_object_string(parsed, "schema");
    if (takes_schema && outcome->http == 200 && schema != NULL) {
        outcome->schema = MR_STRDUP(schema);
    }
    snprintf(outcome->text, sizeof(outcome->text), "%s",
             cJSON_IsString(message) ? message->valuestring
             : outcome->http == 200  ? "its answer has no id"
                                     : "");
}

/* A redirect is not followed: the request, and the password with it, would go to the host that it
 * names. The message has the Location header, because CURLINFO_REDIRECT_URL contains the
 * password. */
static void tell_redirect(CURL *curl, struct outcome *outcome)
{
    struct curl_header *to = NULL;
    if (outcome->http / 100 == 3 &&
        curl_easy_header(curl, "Location", 0, CURLH_HEADER, -1, &to) == CURLHE_OK) {
        snprintf(outcome->text, sizeof(outcome->text),
                 "it redirects to %.300s, which is not followed; set schema_registry.url to where "
                 "it is",
                 to->value);
    }
}

/* With the password as it is now. */
static void registry_set_login(const struct mr_registry_options *options, CURL *curl)
{
    if (options->username != NULL) {
        char *password = mr_secret_take(options->password);
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(curl, CURLOPT_USERNAME, options->username);
        curl_easy_setopt(curl, CURLOPT_PASSWORD, password);
        mr_secret_forget(password);
    }
}

/* One question to the address at hand; a GET without a body. */
static struct outcome ask_path(struct mr_registry *registry, const char *path, const char *body)
{
    struct outcome outcome = {.id = -1};
    struct answer answer = {.bytes = MR_ALLOC(ANSWER_MAX)};
    char reason[CURL_ERROR_SIZE] = "";
    const char *base = registry->options.urls[registry->url];
    size_t base_len = strlen(base);
    while (base_len > 0 && base[base_len - 1] == '/') {
        base_len--;
    }
    MR_TEXT(url);
    mr_text_format(&url, "%.*s%s", (int)base_len, base, path);
    CURL *curl = registry->curl;
    curl_easy_setopt(curl, CURLOPT_URL, url.data);
    registry_set_login(&registry->options, curl);
    if (body == NULL) {
        curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    } else {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &answer);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    if (code == CURLE_OK) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &outcome.http);
        read_answer(&answer, registry->takes_schema, &outcome);
        tell_redirect(curl, &outcome);
    } else if (code == CURLE_WRITE_ERROR) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &outcome.http);
        snprintf(outcome.text, sizeof(outcome.text),
                 "its answer is larger than %d bytes, or its headers than %d", ANSWER_MAX,
                 HEADS_MAX);
    } else {
        snprintf(outcome.text, sizeof(outcome.text), "%s",
                 reason[0] == '\0' ? curl_easy_strerror(code) : reason);
    }
    free(answer.bytes);
    return outcome;
}

static struct outcome registry_ask(struct mr_registry *registry, const struct mr_schema *schema)
{
    char *subject = curl_easy_escape(registry->curl, schema->subject, 0);
    MR_TEXT(path);
    mr_text_format(&path, "/subjects/%s%s", subject,
                   registry->options.registers ? "/versions" : "");
    MR_FREED char *body = body_of(schema);
    struct outcome outcome = ask_path(registry, path.data, body);
    curl_free(subject);
    return outcome;
}

/* What mends an answer that will not change by itself; else `otherwise`. */
static const char *help_with(const struct mr_registry *registry, long http, const char *otherwise)
{
    switch (http) {
    case INCOMPATIBLE:
        return "the table's new form does not fit the subject's compatibility level; change that "
               "level in the registry, or take another subject (schema_registry.subject_strategy), "
               "and start millrace again: the stream goes on where it is";
    case 401:
    case 403:
        return "set schema_registry.username and its password to those of a user who may";
    case 404:
        return registry->options.registers
                   ? "see that schema_registry.url has the path of its API; Apicurio's is "
                     "/apis/ccompat/v7"
                   : "register it, or set schema_registry.register = true";
    case 422:
        return "the registry does not take the schema; see its log";
    default:
        return otherwise;
    }
}

static void tell_away(const struct mr_registry *registry, const struct mr_schema *schema,
                      const struct outcome *outcome)
{
    char text[MR_CAUSE_TEXT_MAX];
    snprintf(
        text, sizeof(text),
        "the schema registry gives subject \"%.200s\" no id (%ld%s%.200s); see that it runs and "
        "is reached from here (schema_registry.url); rows wait in PostgreSQL until it does",
        schema->subject, outcome->http, outcome->text[0] == '\0' ? "" : ", ", outcome->text);
    mr_standstill_begin(registry->standstill, MR_CAUSE_REGISTRY_AWAY, text);
}

static void registry_settle(struct mr_registry *registry, const struct mr_schema *schema)
{
    struct outcome outcome = registry_ask(registry, schema);
    if (mr_schemas_ended(registry->schemas)) {
        return;
    }
    if (outcome.id >= 0) {
        registry->backoff_ms = 0;
        mr_standstill_end(registry->standstill, MR_CAUSE_REGISTRY_AWAY);
        if (mr_schemas_set_id(registry->schemas, schema->index, outcome.id)) {
            mr_log(MR_LOG_INFO, "schema_registered", "a schema has its id",
                   MR_LOG_STR("subject", schema->subject), MR_LOG_INT("id", outcome.id));
        }
        return;
    }
    const char *help = help_with(registry, outcome.http, NULL);
    if (help != NULL) {
        char fault[2 * TEXT_MAX + 512];
        snprintf(fault, sizeof(fault), "the schema registry refuses subject \"%s\" (%ld%s%s): %s",
                 schema->subject, outcome.http, outcome.text[0] == '\0' ? "" : ", ", outcome.text,
                 help);
        mr_schemas_set_fault(registry->schemas, schema->index, fault);
        return;
    }
    tell_away(registry, schema, &outcome);
    registry->url = (registry->url + 1) % registry->options.url_count;
    uint32_t grown = 2 * registry->backoff_ms;
    registry->backoff_ms = grown < BACKOFF_MIN_MS ? BACKOFF_MIN_MS
                           : grown > registry->options.backoff_max_ms
                               ? registry->options.backoff_max_ms
                               : grown;
    mr_log(MR_LOG_WARN, "schema_registry_away",
           "the schema registry gives no id; the stream waits, and it is asked again",
           MR_LOG_STR("subject", schema->subject), MR_LOG_INT("status", outcome.http),
           MR_LOG_STR("reason", outcome.text), MR_LOG_INT("pause_ms", registry->backoff_ms));
    mr_schemas_pause(registry->schemas, registry->backoff_ms);
}

static void *registry_main(void *context)
{
    struct mr_registry *registry = context;
    mr_thread_begin(MR_THREAD_HTTP, "mr-registry");
    while (!mr_schemas_ended(registry->schemas)) {
        const struct mr_schema *schema = mr_schemas_wait(registry->schemas, WAIT_MS);
        if (schema != NULL) {
            registry_settle(registry, schema);
        }
    }
    mr_thread_end();
    return NULL;
}

struct mr_registry *mr_registry_new(const struct mr_registry_options *options,
                                    struct mr_schemas *schemas)
{
    struct mr_registry *registry = MR_NEW(struct mr_registry);
    registry->options = *options;
    registry->schemas = schemas;
    registry->curl = connection_new(registry);
    return registry;
}

mr_status mr_registry_start(struct mr_registry *registry, struct mr_standstill *standstill,
                            struct mr_error *ret_error)
{
    registry->standstill = standstill;
    MR_TRY(mr_thread_create(&registry->thread, registry_main, registry, ret_error));
    registry->started = true;
    return MR_OK;
}

void mr_registry_free(struct mr_registry *registry)
{
    if (registry == NULL) {
        return;
    }
    if (registry->started) {
        mr_schemas_end(registry->schemas);
        pthread_join(registry->thread, NULL);
    }
    curl_easy_cleanup(registry->curl);
    curl_slist_free_all(registry->headers);
    free(registry);
}

void mr_registry_check(const struct mr_registry_options *options, mr_finding_fn report,
                       void *context)
{
    struct mr_registry *registry = mr_registry_new(options, NULL);
    for (; registry->url < options->url_count; registry->url++) {
        struct outcome outcome = ask_path(registry, "/subjects", NULL);
        char subject[TEXT_MAX], finding[2 * TEXT_MAX];
        snprintf(subject, sizeof(subject), "schema registry %s", options->urls[registry->url]);
        if (outcome.http == 0) {
            snprintf(finding, sizeof(finding), "%s", outcome.text);
        } else {
            snprintf(finding, sizeof(finding), "answers %ld %s", outcome.http, outcome.text);
        }
        bool good = outcome.http == 200;
        bool refused = outcome.http == 401 || outcome.http == 403;
        report(context, good ? MR_FINDING_OK : MR_FINDING_ERROR,
               refused ? MR_ERR_AUTH : MR_ERR_TRANSIENT, subject, good ? "answers" : finding,
               good ? NULL
                    : help_with(registry, outcome.http, "start it, or set schema_registry.url"));
    }
    mr_registry_free(registry);
}

static mr_status status_of(const struct outcome *outcome)
{
    return outcome->schema != NULL                        ? MR_OK
           : outcome->http == 401 || outcome->http == 403 ? MR_ERR_AUTH
           : outcome->http == 404                         ? MR_ERR_PROTOCOL
                                                          : MR_ERR_TRANSIENT;
}

mr_status mr_registry_schema(const struct mr_registry_options *options, uint32_t id,
                             char **ret_text, struct mr_error *ret_error)
{
    struct mr_registry *registry = mr_registry_new(options, NULL);
    registry->takes_schema = true;
    char path[48];
    snprintf(path, sizeof(path), "/schemas/ids/%u", id);
    mr_status status = MR_ERR_TRANSIENT;
    for (; registry->url < options->url_count && status == MR_ERR_TRANSIENT; registry->url++) {
        struct outcome outcome = ask_path(registry, path, NULL);
        status = status_of(&outcome);
        *ret_text = outcome.schema;
        if (status != MR_OK) {
            mr_error_set(
                ret_error, status, "the schema registry %s does not say schema %u (%ld %s); %s",
                options->urls[registry->url], id, outcome.http, outcome.text,
                help_with(registry, outcome.http, "see that it runs and is reached from here"));
        }
    }
    mr_registry_free(registry);
    return status;
}
