#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 64, LENGTH_AT = 56, ROUNDS = 64 };

/* FIPS 180-4, section 4.2.2: the first bits of the fractions of cube roots. */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

struct sha256 {
    uint32_t state[8];
    uint8_t block[BLOCK_BYTES];
    size_t filled;
    uint64_t bytes;
};

static uint32_t rotate(uint32_t value, unsigned by)
{
    return value >> by | value << (32 - by);
}

static void schedule(const uint8_t *block, uint32_t words[ROUNDS])
{
    for (unsigned i = 0; i < 16; i++) {
        const uint8_t *at = block + 4 * i;
        words[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (unsigned i = 16; i < ROUNDS; i++) {
        uint32_t a = words[i - 15];
        uint32_t b = words[i - 2];
        words[i] = words[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + words[i - 7] +
                   (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

/* Section 6.2.2; s[0] to s[7] are a to h. */
static void take_block(struct sha256 *sha)
{
    uint32_t words[ROUNDS];
    uint32_t s[8];
    schedule(sha->block, words);
    memcpy(s, sha->state, sizeof(s));
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t first = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice +
                         constants[i] + words[i];
        uint32_t second = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += first;
        s[0] = first + second;
    }
    for (unsigned i = 0; i < 8; i++) {
        sha->state[i] += s[i];
    }
    sha->filled = 0;
}

static void add(struct sha256 *sha, mr_slice bytes)
{
    sha->bytes += bytes.len;
    for (size_t at = 0; at < bytes.len;) {
        size_t room = BLOCK_BYTES - sha->filled;
        size_t len = bytes.len - at < room ? bytes.len - at : room;
        memcpy(sha->block + sha->filled, bytes.data + at, len);
        sha->filled += len;
        at += len;
        if (sha->filled == BLOCK_BYTES) {
            take_block(sha);
        }
    }
}

/* A bit, zeros, and the length in bits. */
static void end(struct sha256 *sha)
{
    sha->block[sha->filled++] = 0x80;
    if (sha->filled > LENGTH_AT) {
        memset(sha->block + sha->filled, 0, BLOCK_BYTES - sha->filled);
        take_block(sha);
    }
    memset(sha->block + sha->filled, 0, LENGTH_AT - sha->filled);
    for (unsigned i = 0; i < 8; i++) {
        sha->block[LENGTH_AT + i] = (uint8_t)(8 * sha->bytes >> (56 - 8 * i));
    }
    take_block(sha);
}

void mr_sha256(mr_slice first, mr_slice second, uint8_t ret[MR_SHA256_BYTES])
{
    struct sha256 sha = {.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                   0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
    add(&sha, first);
    add(&sha, second);
    end(&sha);
    for (unsigned i = 0; i < MR_SHA256_BYTES; i++) {
        ret[i] = (uint8_t)(sha.state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

struct mr_sha256_short mr_sha256_short(mr_slice bytes)
{
    uint8_t hash[MR_SHA256_BYTES];
    struct mr_sha256_short ret;
    mr_sha256(bytes, (mr_slice){0}, hash);
    for (size_t i = 0; i < MR_SHA256_BYTES / 2; i++) {
        snprintf(ret.text + 2 * i, 3, "%02x", hash[i]);
    }
    return ret;
}
