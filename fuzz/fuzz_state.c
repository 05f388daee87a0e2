/* Any bytes as a record of the state topic: refused, or a position whose text reads back as the
 * same, and which may be held against a server's. */
#include <stdlib.h>
#include <string.h>

#include "copy/copies.h"
#include "event/checkpoint.h"
#include "fuzz.h"
#include "kafka/kafka_state.h"
#include "ledger/entry.h"

static void assert_same(const struct mr_checkpoint *a, const struct mr_checkpoint *b)
{
    MR_ASSERT(strcmp(a->identity.system_id, b->identity.system_id) == 0);
    MR_ASSERT(strcmp(a->identity.slot, b->identity.slot) == 0);
    MR_ASSERT(strcmp(a->identity.publication, b->identity.publication) == 0);
    MR_ASSERT(a->identity.timeline == b->identity.timeline);
    MR_ASSERT(a->identity.tables == b->identity.tables && a->section_count == b->section_count);
    MR_ASSERT(a->end_lsn == b->end_lsn);
    MR_ASSERT(mr_position_compare(a->position, b->position) == 0);
}

static const struct mr_section_kind *all_kinds(void)
{
    static struct mr_section_kind kinds[8];
    uint32_t count = 0;
    for (; mr_copy_section_kinds[count].name != NULL; count++) {
        kinds[count] = mr_copy_section_kinds[count];
    }
    kinds[count] = mr_ledger_section_kind;
    MR_ASSERT(count + 1 < MR_ARRAY_LEN(kinds));
    return kinds;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mr_section_kind *kinds = all_kinds();
    struct mr_checkpoint state = {.end_lsn = 1};
    if (!mr_state_parse(data, size, kinds, &state)) {
        MR_ASSERT(state.end_lsn == 1 && state.identity.slot[0] == '\0'); /* as it was */
        return 0;
    }
    char *text = mr_state_format(&state);
    struct mr_checkpoint again;
    MR_ASSERT(mr_state_parse(text, strlen(text), kinds, &again));
    free(text);
    assert_same(&state, &again);
    MR_ASSERT(!mr_checkpoint_is_behind(&state, &again));

    struct mr_server_position server = {.identity = state.identity,
                                        .slot_exists = true,
                                        .slot_confirmed = state.end_lsn,
                                        .flushed = UINT64_MAX};
    struct mr_error error = {0};
    mr_status status = mr_checkpoint_verify(&state, &server, 0, &error);
    mr_checkpoint_done(&state);
    mr_checkpoint_done(&again);
    MR_ASSERT(status == MR_OK || (status == MR_ERR_HISTORY && error.text[0] != '\0'));
    return 0;
}
