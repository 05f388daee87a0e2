#include "control/client.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_BYTES_MAX = 16 * 1024 * 1024 };

struct answer {
    char *bytes;
    size_t len;
};

/* CURLOPT_WRITEFUNCTION */
static size_t take_bytes(char *bytes, size_t one, size_t len, void *context)
{
    (void)one;
    struct answer *answer = context;
    if (answer->len + len > ANSWER_BYTES_MAX) {
        return 0;
    }
    answer->bytes = MR_REALLOC(answer->bytes, answer->len + len + 1);
    memcpy(answer->bytes + answer->len, bytes, len);
    answer->len += len;
    answer->bytes[answer->len] = '\0';
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
    } else if (host[0] == '\0' || strcmp(host, "0.0.0.0") == 0) {
        host = "127.0.0.1";
    } else if (strcmp(host, "::") == 0) {
        host = "::1";
    }
    bool v6 = strchr(host, ':') != NULL;
    snprintf(ret, size, v6 ? "%s://[%s]:%u%s" : "%s://%s:%u%s", scheme, host,
             address->is_unix ? 80 : address->port, path);
}

static void set_up(CURL *curl, const struct mr_http_options *server, const char *url,
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
        curl_easy_setopt(curl, CURLOPT_PASSWORD, server->password);
    }
    if (server->certificate != NULL) {
        /* It must be this very certificate; then the name in it, which need not be the address we use, says
         * nothing more. */
        struct curl_blob trusted = {
            .data = (void *)(uintptr_t)server->certificate,
            .len = strlen(server->certificate),
            .flags = CURL_BLOB_COPY,
        };
        curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &trusted);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

static mr_status ask(const struct mr_http_options *server, const char *path, const char *text,
                     long timeout_ms, char **ret_body, size_t *ret_len, long *ret_http_status,
                     struct mr_error *ret_error)
{
    char url[MR_ADDRESS_HOST_MAX + 256];
    make_url(server, path, url, sizeof(url));
    struct answer answer = {.bytes = MR_STRDUP("")};
    char reason[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();
    MR_ASSERT(curl != NULL);
    set_up(curl, server, url, timeout_ms);
    if (text != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
    }
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    CURLcode code = curl_easy_perform(curl);
    long http_status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http_status);
    curl_easy_cleanup(curl);
    if (code != CURLE_OK) {
        free(answer.bytes);
        return mr_fail(
            ret_error, MR_ERR_TRANSIENT,
            "no answer from %s%s: %s; is millrace running, and is this its http.address?",
            server->address.is_unix ? "unix:" : url,
            server->address.is_unix ? server->address.path : "",
            reason[0] == '\0' ? curl_easy_strerror(code) : reason);
    }
    *ret_body = answer.bytes;
    *ret_http_status = http_status;
    if (ret_len != NULL) {
        *ret_len = answer.len;
    }
    return MR_OK;
}

mr_status mr_client_get(const struct mr_http_options *server, const char *path, long timeout_ms,
                        char **ret_body, size_t *ret_len, long *ret_http_status,
                        struct mr_error *ret_error)
{
    return ask(server, path, NULL, timeout_ms, ret_body, ret_len, ret_http_status, ret_error);
}

mr_status mr_client_post(const struct mr_http_options *server, const char *path, const char *text,
                         long timeout_ms, char **ret_body, long *ret_http_status,
                         struct mr_error *ret_error)
{
    return ask(server, path, text, timeout_ms, ret_body, NULL, ret_http_status, ret_error);
}
