/* Who may ask for what: method, origin, host, password. */
#include <string.h>

#include "admin/http_internal.h"

/* As long for a wrong text as for the right one. */
static bool equal_secret(const char *given, const char *wanted)
{
    size_t given_len = given == NULL ? 0 : strlen(given);
    size_t wanted_len = strlen(wanted);
    unsigned difference = given_len != wanted_len;
    for (size_t i = 0; i < wanted_len; i++) {
        difference |= (unsigned char)wanted[i] ^ (unsigned char)(i < given_len ? given[i] : 0);
    }
    return difference == 0;
}

static bool is_authorized(const struct mr_http_options *options, struct MHD_Connection *of)
{
    if (options->username == NULL) {
        return true;
    }
    char *password = NULL;
    char *username = MHD_basic_auth_get_username_password(of, &password);
    bool name_good = equal_secret(username, options->username);
    bool password_good = equal_secret(password, options->password);
    MHD_free(username);
    MHD_free(password);
    return name_good && password_good;
}

/* On a loopback address a page of somewhere else could reach us through a name that resolves to
 * 127.0.0.1; then its name stands in Host. With a password it has nothing to say. */
static bool is_host_good(const struct mr_http_options *options, struct MHD_Connection *of)
{
    const char *host = MHD_lookup_connection_value(of, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const struct mr_address *address = &options->address;
    if (host == NULL || options->username != NULL || address->is_unix ||
        !mr_address_is_local(address)) {
        return true;
    }
    struct mr_address asked = {0};
    char with_port[MR_ADDRESS_HOST_MAX + 8];
    snprintf(with_port, sizeof(with_port), "%s:0", host);
    return (mr_address_parse(host, &asked, NULL) == MR_OK ||
            mr_address_parse(with_port, &asked, NULL) == MR_OK) &&
           !asked.is_unix && mr_address_is_local(&asked);
}

/* A page of somewhere else may let its reader's browser send us a POST; it then says where that comes from. */
static bool is_origin_good(struct MHD_Connection *of)
{
    const char *origin = MHD_lookup_connection_value(of, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    const char *host = MHD_lookup_connection_value(of, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const char *name = origin == NULL ? NULL : strstr(origin, "://");
    return origin == NULL || (name != NULL && host != NULL && strcmp(name + 3, host) == 0);
}

bool mr_http_admit(const struct mr_http_options *options, struct MHD_Connection *from,
                   const char *method, bool ending, struct mr_http_request *request)
{
    bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    if (request->route != NULL && request->route->post != is_post) {
        mr_http_fail(request, MHD_HTTP_METHOD_NOT_ALLOWED,
                     request->route->post ? "this changes something: ask with POST"
                                          : "only GET and HEAD are served");
        mr_http_header(request, MHD_HTTP_HEADER_ALLOW, request->route->post ? "POST" : "GET, HEAD");
    } else if (!is_post && strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
               strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        mr_http_fail(request, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are served");
        mr_http_header(request, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    } else if (is_post && !is_origin_good(from)) {
        mr_http_fail(request, MHD_HTTP_FORBIDDEN, "a page of another server can't ask for this");
    } else if (!is_host_good(options, from)) {
        mr_http_fail(request, MHD_HTTP_FORBIDDEN,
                     "a server on a loopback address answers to localhost and its numeric address "
                     "only; ask for one of these, or set http.username");
    } else if ((request->route == NULL || !request->route->open) && !is_authorized(options, from)) {
        mr_http_fail(request, MHD_HTTP_UNAUTHORIZED, "user name and password are needed");
    } else if (request->route == NULL) {
        mr_http_fail(request, MHD_HTTP_NOT_FOUND, "nothing is served at this path");
    } else if (request->route->slow && ending) {
        /* It could begin when nobody waits for it any more. */
        mr_http_fail_ending(request);
    } else if (request->too_many_parameters) {
        mr_http_fail(request, MHD_HTTP_BAD_REQUEST,
                     "at most %d parameters of at most %d bytes are taken", PARAMETERS_MAX,
                     PARAMETER_VALUE_MAX);
    } else {
        return true;
    }
    return false;
}
