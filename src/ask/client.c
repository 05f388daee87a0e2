#include "ask/client.h"

#include <curl/curl.h>

#include "base/object.h"
#include "base/text.h"

enum { ANSWER_BYTES_MAX = 16 * 1024 * 1024, TIMEOUT_MS = 5000 };

static size_t client_take_bytes(char *bytes, size_t one, size_t len, void *context)
{
    struct mr_client_answer *answer = context;
    if (answer->len + len > ANSWER_BYTES_MAX) {
        return 0;
    }
    answer->body = MR_REALLOC(answer->body, answer->len + len + 1);
    memcpy(answer->body + answer->len, bytes, len);
    answer->len += len;
    answer->body[answer->len] = '\0';
    return len;
}

/* Where to reach a server that listens there: "all interfaces" is this machine. */
static void make_url(const struct mr_http_options *server, const char *path, char *ret, size_t size)
{
    const struct mr_address *address = &server->address;
    const char *scheme = server->certificate == NULL ? "http" : "https";
    const char *host = address->host;
    if (address->is_unix) {
        host = "localhost";
    } else if (mr_address_is_any(&server->address)) {
        host = "127.0.0.1";
    } else if (strcmp(host, "::") == 0) {
        host = "::1";
    }
    bool v6 = strchr(host, ':') != NULL;
    int zone = (int)strcspn(host, "%"); /* after a "%25": RFC 6874 */
    snprintf(ret, size, v6 ? "%s://[%.*s%s%s]:%u%s" : "%s://%.*s%s%s:%u%s", scheme, zone, host,
             host[zone] == '\0' ? "" : "%25", host[zone] == '\0' ? "" : host + zone + 1,
             address->is_unix ? 80 : address->port, path);
}

static void client_set_up(CURL *curl, const struct mr_http_options *server, const char *url,
                          long timeout_ms)
{
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    if (server->address.is_unix) {
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, server->address.path);
    }
    if (server->username != NULL) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(curl, CURLOPT_USERNAME, server->username);
        char *password = mr_secret_take(server->password);
        curl_easy_setopt(curl, CURLOPT_PASSWORD, password);
        mr_secret_forget(password);
    }
    if (server->certificate != NULL) {
        /* Only this certificate is trusted, so that the name in it, which need not be the address
         * we use, adds nothing. */
        struct curl_blob trusted = {
            .data = (void *)(uintptr_t)server->certificate,
            .len = strlen(server->certificate),
            .flags = CURL_BLOB_COPY,
        };
        curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &trusted);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

mr_status mr_client_ask(const struct mr_http_options *server, const char *path, const char *text,
                        long timeout_ms, struct mr_client_answer *ret, struct mr_error *ret_error)
{
    char url[MR_ADDRESS_HOST_MAX + 256];
    if (!server->address.is_unix && server->address.port == 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "http.address has port 0, which is another one at each start; give the one "
                       "that the log has (http_listening) with --address");
    }
    make_url(server, path, url, sizeof(url));
    struct mr_client_answer answer = {.body = MR_STRDUP("")};
    char reason[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();
    MR_ASSERT(curl != NULL);
    client_set_up(curl, server, url, timeout_ms == 0 ? TIMEOUT_MS : timeout_ms);
    if (text != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
    }
    struct curl_slist *headers = NULL;
    if (server->pipeline.path != NULL) {
        MR_FREED char *mark =
            mr_formatted(MR_PIPELINE_HEADER ": %s", mr_pipeline_mark(&server->pipeline).text);
        headers = curl_slist_append(NULL, mark);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    }
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, client_take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.http_status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    if (code != CURLE_OK) {
        free(answer.body);
        return mr_fail(
            ret_error, MR_ERR_TRANSIENT,
            "no answer from %s%s: %s; is millrace running, and is this its http.address?",
            server->address.is_unix ? "unix:" : url,
            server->address.is_unix ? server->address.path : "",
            reason[0] == '\0' ? curl_easy_strerror(code) : reason);
    }
    *ret = answer;
    return MR_OK;
}

mr_status mr_client_refusal(const char *path, long http_status, const char *body,
                            struct mr_error *ret_error)
{
    if (http_status == MR_HTTP_UNAUTHORIZED) {
        return mr_fail(ret_error, MR_ERR_AUTH,
                       "millrace wants a user name and a password for %.*s; give its configuration "
                       "with --config",
                       (int)strcspn(path, "?"), path);
    }
    /* {"error":"…"}: the sentence is for people. */
    MR_OBJECT cJSON *answer = cJSON_Parse(body);
    const cJSON *error = mr_object_at(answer, "error");
    bool may_pass = http_status >= MR_HTTP_INTERNAL || http_status == MR_HTTP_TOO_MANY;
    bool is_theirs = http_status == MR_HTTP_FORBIDDEN || http_status == MR_HTTP_MISDIRECTED;
    mr_status status = may_pass ? MR_ERR_TRANSIENT : is_theirs ? MR_ERR_CONFIG : MR_ERR_USAGE;
    if (cJSON_IsString(error)) {
        return mr_fail(ret_error, status, "%s", error->valuestring);
    }
    return mr_fail(ret_error, may_pass ? MR_ERR_TRANSIENT : MR_ERR_CONFIG,
                   "%.*s is answered with HTTP status %ld: what answers there is not millrace, but "
                   "another program has its port (ss -ltnp); or set --address or --config",
                   (int)strcspn(path, "?"), path, http_status);
}

mr_status mr_client_object(const struct mr_http_options *server, const char *path, const char *text,
                           cJSON **ret_object, struct mr_error *ret_error)
{
    struct mr_client_answer answer;
    MR_TRY(mr_client_ask(server, path, text, 0, &answer, ret_error));
    MR_FREED char *body = answer.body;
    if (answer.http_status != MR_HTTP_OK) {
        return mr_client_refusal(path, answer.http_status, body, ret_error);
    }
    *ret_object = cJSON_Parse(body);
    return *ret_object != NULL
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "what answers there is not millrace, but another program has its port "
                         "(ss -ltnp); or set --address or --config");
}
