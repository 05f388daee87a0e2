#include "ask/address.h"

#include <arpa/inet.h>
#include <strings.h>

#define V6_CHARACTERS   "0123456789abcdefABCDEF:.%"
#define NAME_CHARACTERS "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_"

static mr_status address_parse_unix(const char *path, struct mr_address *ret,
                                    struct mr_error *ret_error)
{
    size_t len = strlen(path);
    if (path[0] != '/' || len > MR_ADDRESS_PATH_MAX) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "\"unix:%s\" must name an absolute path of at most %d bytes", path,
                       MR_ADDRESS_PATH_MAX);
    }
    struct mr_address address = {.is_unix = true};
    memcpy(address.path, path, len + 1);
    *ret = address;
    return MR_OK;
}

static bool address_parse_port(const char *text, uint16_t *ret)
{
    size_t len = strlen(text);
    if (len == 0 || len > 5 || strspn(text, "0123456789") != len) {
        return false;
    }
    unsigned long port = strtoul(text, NULL, 10);
    if (port > UINT16_MAX) {
        return false;
    }
    *ret = (uint16_t)port;
    return true;
}

mr_status mr_address_parse(const char *text, struct mr_address *ret, struct mr_error *ret_error)
{
    static const char unix_prefix[] = "unix:";
    if (strncmp(text, unix_prefix, sizeof(unix_prefix) - 1) == 0) {
        return address_parse_unix(text + sizeof(unix_prefix) - 1, ret, ret_error);
    }
    struct mr_address address = {0};
    const char *colon = strrchr(text, ':');
    bool bracket = text[0] == '[';
    const char *from = text + bracket;
    const char *end = colon == NULL ? NULL : colon - bracket;
    size_t len = strspn(from, bracket ? V6_CHARACTERS : NAME_CHARACTERS);
    bool good = end != NULL && from + len == end && len <= MR_ADDRESS_HOST_MAX &&
                (!bracket || *end == ']') && address_parse_port(colon + 1, &address.port);
    if (!good) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "\"%s\" is not an address; write \"127.0.0.1:9464\", \"[::1]:9464\" or "
                       "\"unix:/path\"",
                       text);
    }
    memcpy(address.host, from, len);
    *ret = address;
    return MR_OK;
}

bool mr_address_is_local(const struct mr_address *address)
{
    struct in_addr v4;
    if (address->is_unix || strcasecmp(address->host, "localhost") == 0 ||
        strcmp(address->host, "::1") == 0) {
        return true;
    }
    return inet_pton(AF_INET, address->host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool mr_address_is_any(const struct mr_address *address)
{
    return !address->is_unix && (address->host[0] == '\0' || strcmp(address->host, "0.0.0.0") == 0);
}
