/* Two positions: their header texts compare as the positions do, and each has its width. */
#include <string.h>

#include "fuzz.h"
#include "sink/record_headers.h"

static struct mr_record record_of(const uint8_t *data)
{
    struct mr_record record = {0};
    memcpy(&record.position, data, sizeof(record.position));
    record.position.ordinal &= UINT64_C(0xFFFFFFFFFF); /* ten digits */
    memcpy(&record.commit_time_us, data + 16, sizeof(record.commit_time_us));
    memcpy(&record.xid, data + 24, sizeof(record.xid));
    record.part = data[28] % 10;
    return record;
}

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { ONE = 29 };
    if (size < 2 * ONE) {
        return 0;
    }
    struct mr_record a = record_of(data), b = record_of(data + ONE);
    struct mr_record_headers of_a = {0}, of_b = {0};
    mr_record_headers_format(&a, &of_a);
    mr_record_headers_format(&b, &of_b);
    int want = mr_position_compare(a.position, b.position);
    want = want == 0 ? (int)a.part - (int)b.part : want;
    int got = memcmp(of_a.position, of_b.position, sizeof(of_a.position));
    MR_ASSERT(sign(got) == sign(want));
    MR_ASSERT(of_a.xid_len >= 1 && of_a.xid_len <= sizeof(of_a.xid));
    MR_ASSERT(of_a.commit_time_len >= 1 && of_a.commit_time_len <= sizeof(of_a.commit_time));
    return 0;
}
