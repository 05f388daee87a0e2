/* Debezium's offset (PostgresOffsetContext.getOffset): `lsn` is that of the last event, as
 * pgoutput's messages carry it, `txId` its transaction, `lsn_commit` the end of the last
 * transaction that was sent as a whole. */
#include <ctype.h>

#include "base/object.h"
#include "convert/convert.h"

/* The object that has the positions; NULL: there is none, or more than one. */
static const cJSON *find_offset(const cJSON *root)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(root, "offsets");
    if (offsets == NULL) {
        return cJSON_IsObject(root) ? root : NULL;
    }
    return cJSON_GetArraySize(offsets) == 1
               ? cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(offsets, 0), "offset")
               : NULL;
}

/* A whole number above 0; 0: it is not there, or something else. cJSON's are doubles, which would
 * make another place of one above 2^53: so the digits are read in the text. (A name within a string
 * has a backslash before its last quote.) */
static uint64_t offset_number_of(const cJSON *offset, const char *text, size_t len,
                                 const char *name)
{
    char quoted[32];
    snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(offset, name);
    const char *at = cJSON_IsNumber(item) ? memmem(text, len, quoted, strlen(quoted)) : NULL;
    if (at == NULL) {
        return 0;
    }
    at += strlen(quoted);
    at += strspn(at, " \t\r\n:");
    char *end = NULL;
    errno = 0;
    uint64_t value = isdigit((unsigned char)*at) ? strtoull(at, &end, 10) : 0;
    return errno != 0 || value == 0 || strchr(".eE", *end) != NULL ? 0 : value;
}

/* Snapshot: "snapshot" is a word, or true, until the copy is complete. */
static bool is_copying(const cJSON *offset)
{
    const cJSON *snapshot = cJSON_GetObjectItemCaseSensitive(offset, "snapshot");
    return cJSON_IsString(snapshot) || cJSON_IsTrue(snapshot);
}

bool mr_convert_offset(const char *text, size_t len, struct mr_handed_over *ret, char *ret_reason,
                       size_t reason_size)
{
    MR_OBJECT cJSON *root = cJSON_ParseWithLength(text, len);
    const cJSON *offset = find_offset(root);
    const char *reason = NULL;
    struct mr_handed_over found = {
        .end_lsn = offset_number_of(offset, text, len, "lsn_commit"),
        .lsn = offset_number_of(offset, text, len, "lsn"),
        .xid = (uint32_t)offset_number_of(offset, text, len, "txId"),
    };
    if (root == NULL) {
        reason = "it is not JSON";
    } else if (offset == NULL) {
        reason = "it has not the offset of one connector";
    } else if (found.lsn == 0) {
        reason = "it has no \"lsn\"; is it the offset of a PostgreSQL connector?";
    } else if (is_copying(offset)) {
        reason = "the connector's snapshot was not complete; let it end, or drop the slot and have "
                 "millrace copy the tables (docs/snapshots.md)";
    }
    if (reason != NULL) {
        snprintf(ret_reason, reason_size, "%s", reason);
        return false;
    }
    *ret = found;
    return true;
}
