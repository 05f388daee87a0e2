/* Debezium's offset (PostgresOffsetContext.getOffset): `lsn` is that of the last event, as
 * pgoutput's messages carry it, `txId` its transaction, `lsn_commit` the end of the last
 * transaction that was sent as a whole. */
#include <cjson/cJSON.h>
#include <stdio.h>

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

/* A number above 0; 0: it is not there, or something else. cJSON's are exact up to 2^53, and a
 * server has written less. */
static uint64_t number_of(const cJSON *offset, const char *name)
{
    enum { EXACT_BITS = 53 };
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(offset, name);
    double value = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return value >= 1 && value < (double)(UINT64_C(1) << EXACT_BITS) ? (uint64_t)value : 0;
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
    cJSON *root = cJSON_ParseWithLength(text, len);
    const cJSON *offset = find_offset(root);
    const char *reason = NULL;
    struct mr_handed_over found = {
        .end_lsn = number_of(offset, "lsn_commit"),
        .lsn = number_of(offset, "lsn"),
        .xid = (uint32_t)number_of(offset, "txId"),
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
    cJSON_Delete(root);
    if (reason != NULL) {
        snprintf(ret_reason, reason_size, "%s", reason);
        return false;
    }
    *ret = found;
    return true;
}
