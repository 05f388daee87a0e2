#include "event/lsn.h"

#include "base/object.h"

enum { DIGITS_MAX = 8 };

_Atomic mr_lsn mr_lsn_shift;

static bool take_half(const char **text, mr_lsn *ret_half)
{
    size_t digits = strspn(*text, "0123456789abcdefABCDEF");
    if (digits == 0 || digits > DIGITS_MAX) {
        return false;
    }
    char half[DIGITS_MAX + 1] = {0};
    memcpy(half, *text, digits);
    *ret_half = strtoul(half, NULL, 16);
    *text += digits;
    return true;
}

bool mr_lsn_parse(const char *text, mr_lsn *ret_lsn, const char **ret_rest)
{
    mr_lsn high;
    mr_lsn low;
    if (text == NULL || !take_half(&text, &high) || *text++ != '/' || !take_half(&text, &low) ||
        (ret_rest == NULL && *text != '\0')) {
        return false;
    }
    *ret_lsn = high << 32 | low;
    if (ret_rest != NULL) {
        *ret_rest = text;
    }
    return true;
}

void mr_lsn_add(cJSON *object, const char *name, mr_lsn lsn)
{
    char text[32];
    snprintf(text, sizeof(text), MR_LSN_FORMAT, MR_LSN_ARGS(lsn));
    cJSON_AddStringToObject(object, name, text);
}
