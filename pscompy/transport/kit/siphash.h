/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein): a keyed hash
 * for short messages. Transports use it to prove that both ends of a lane
 * hold the same one-time token; it encrypts nothing. Header only, no state. */
#ifndef PSCOMPY_TRANSPORT_KIT_SIPHASH_H
#define PSCOMPY_TRANSPORT_KIT_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PSC_SIPHASH_KEY_SIZE 16u
#define PSC_SIPHASH_SIZE 16u

typedef struct psc_siphash {
    uint64_t v[4];
} psc_siphash_t;

static inline uint64_t psc_siphash_load(const uint8_t *p)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static inline void psc_siphash_store(uint8_t *p, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t psc_siphash_rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void psc_siphash_rounds(psc_siphash_t *s, unsigned rounds)
{
    uint64_t *v = s->v;
    while (rounds-- > 0) {
        v[0] += v[1];
        v[1] = psc_siphash_rotate(v[1], 13) ^ v[0];
        v[0] = psc_siphash_rotate(v[0], 32);
        v[2] += v[3];
        v[3] = psc_siphash_rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = psc_siphash_rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = psc_siphash_rotate(v[1], 17) ^ v[2];
        v[2] = psc_siphash_rotate(v[2], 32);
    }
}

static inline void psc_siphash_word(psc_siphash_t *s, uint64_t word)
{
    s->v[3] ^= word;
    psc_siphash_rounds(s, 2);
    s->v[0] ^= word;
}

static inline void psc_siphash_init(psc_siphash_t *s, const uint8_t *key)
{
    uint64_t k0 = psc_siphash_load(key), k1 = psc_siphash_load(key + 8);
    s->v[0] = k0 ^ 0x736f6d6570736575ull;
    s->v[1] = k1 ^ 0x646f72616e646f6dull ^ 0xee;
    s->v[2] = k0 ^ 0x6c7967656e657261ull;
    s->v[3] = k1 ^ 0x7465646279746573ull;
}

/* Stores the hash of `data` under `key` in `out`. The key has
 * PSC_SIPHASH_KEY_SIZE bytes, the hash PSC_SIPHASH_SIZE. */
static inline void psc_siphash(const uint8_t *key, const void *data, size_t len,
                               uint8_t *out)
{
    psc_siphash_t s;
    const uint8_t *p = data;
    uint8_t tail[8] = {0};
    size_t whole = len & ~(size_t)7;

    psc_siphash_init(&s, key);
    for (size_t at = 0; at < whole; at += 8)
        psc_siphash_word(&s, psc_siphash_load(p + at));
    if (len > whole)
        memcpy(tail, p + whole, len - whole);
    tail[7] = (uint8_t)len;
    psc_siphash_word(&s, psc_siphash_load(tail));
    s.v[2] ^= 0xee;
    psc_siphash_rounds(&s, 4);
    psc_siphash_store(out, s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3]);
    s.v[1] ^= 0xdd;
    psc_siphash_rounds(&s, 4);
    psc_siphash_store(out + 8, s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3]);
}

/* Compares two hashes in constant time. */
static inline int psc_siphash_equal(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;
    for (unsigned i = 0; i < PSC_SIPHASH_SIZE; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

#endif
