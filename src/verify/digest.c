#include "verify/digest.h"

#include <sys/random.h>

struct mr_digest mr_digest_draw_key(void)
{
    struct mr_digest key;
    ssize_t got = getrandom(&key, sizeof(key), 0);
    MR_ASSERT(got == (ssize_t)sizeof(key)); /* so few bytes come whole (getrandom(2)) */
    return key;
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t digest_rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void sip_round(struct sip *sip)
{
    sip->v0 += sip->v1;
    sip->v1 = digest_rotate(sip->v1, 13) ^ sip->v0;
    sip->v0 = digest_rotate(sip->v0, 32);
    sip->v2 += sip->v3;
    sip->v3 = digest_rotate(sip->v3, 16) ^ sip->v2;
    sip->v0 += sip->v3;
    sip->v3 = digest_rotate(sip->v3, 21) ^ sip->v0;
    sip->v2 += sip->v1;
    sip->v1 = digest_rotate(sip->v1, 17) ^ sip->v2;
    sip->v2 = digest_rotate(sip->v2, 32);
}

static inline void sip_take(struct sip *sip, uint64_t word)
{
    sip->v3 ^= word;
    sip_round(sip);
    sip->v0 ^= word;
}

static inline uint64_t sip_end(struct sip *sip)
{
    sip_round(sip);
    sip_round(sip);
    sip_round(sip);
    return sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3;
}

/* The last word: fewer than eight bytes at the end, and the length. No copy of that many bytes,
 * which the load of a whole word after it would have to wait for: texts are short. */
static inline uint64_t last_word(const uint8_t *bytes, size_t len)
{
    unsigned left = len % 8;
    uint64_t word = 0;
    if (len >= 8) {
        word = left == 0 ? 0 : mr_word_at(bytes + len - 8) >> (64 - 8 * left);
    } else {
        for (unsigned i = 0; i < left; i++) {
            word |= (uint64_t)bytes[i] << (8 * i);
        }
    }
    return word | (uint64_t)len << 56;
}

struct mr_digest mr_digest_of(struct mr_digest key, mr_slice bytes)
{
    /* "somepseudorandomlygeneratedbytes", and 0xee for 128 bits: Aumasson and Bernstein,
     * SipHash. */
    struct sip sip = {.v0 = key.low ^ UINT64_C(0x736f6d6570736575),
                      .v1 = key.high ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                      .v2 = key.low ^ UINT64_C(0x6c7967656e657261),
                      .v3 = key.high ^ UINT64_C(0x7465646279746573)};
    for (size_t at = 0; bytes.len - at >= 8; at += 8) {
        sip_take(&sip, mr_word_at(bytes.data + at));
    }
    sip_take(&sip, last_word(bytes.data, bytes.len));
    sip.v2 ^= 0xee;
    struct mr_digest digest;
    digest.low = sip_end(&sip);
    sip.v1 ^= 0xdd;
    digest.high = sip_end(&sip);
    return digest;
}
