/* The bytes on a stream and in an endpoint's address, all little-endian.
 *
 * Address   version 1, count 1, 0 (6 bytes), host id 8, endpoint id 8, then
 *           per address: family 1 (4 or 6), 0, port 2, the 4 or 16 bytes
 * Hello     magic 8, the acceptor's endpoint id 8, nonce 16     connector
 * Challenge magic 8, nonce 16, proof 16                         acceptor
 * Proof     proof 16                                            connector
 * Frame     magic 4, kind 1, id 1, header length 1, 0, payload length 8,
 *           then header and payload
 *
 * A proof is a keyed hash over the role, the endpoint id and both nonces; the
 * key is the lane's one-time token, which never travels. */
#ifndef PSCOMPY_TCP_WIRE_H
#define PSCOMPY_TCP_WIRE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "pscompy/transport/kit/siphash.h"
#include "pscompy/transport/transport.h"

#define TCP_ADDRESS_VERSION 1u
#define TCP_ADDRESS_HEAD 24u
#define TCP_ADDRESSES_MAX 16u

#define TCP_HELLO_MAGIC 0x31304f4c50435350ull     /* "PSCPLO01" */
#define TCP_CHALLENGE_MAGIC 0x3130484350435350ull /* "PSCPCH01" */
#define TCP_NONCE_SIZE 16u
#define TCP_PROOF_SIZE PSC_SIPHASH_SIZE
#define TCP_HELLO_SIZE 32u
#define TCP_CHALLENGE_SIZE 40u

#define TCP_FRAME_MAGIC 0x70637363u /* "cscp" */
#define TCP_FRAME_SIZE 16u

typedef enum tcp_kind { TCP_KIND_AM = 1, TCP_KIND_GOODBYE = 2 } tcp_kind_t;

typedef struct tcp_frame {
    uint8_t kind, id, header_len;
    uint64_t len;
} tcp_frame_t;

static inline void tcp_wire_store64(uint8_t *p, uint64_t value)
{
    value = htole64(value);
    memcpy(p, &value, sizeof(value));
}

static inline uint64_t tcp_wire_load64(const uint8_t *p)
{
    uint64_t value;

    memcpy(&value, p, sizeof(value));
    return le64toh(value);
}

static inline void tcp_frame_pack(uint8_t *p, const tcp_frame_t *frame)
{
    tcp_wire_store64(p, (uint64_t)TCP_FRAME_MAGIC |
                            (uint64_t)frame->kind << 32 |
                            (uint64_t)frame->id << 40 |
                            (uint64_t)frame->header_len << 48);
    tcp_wire_store64(p + 8, frame->len);
}

/* NULL, or what is wrong with the frame. */
static inline const char *tcp_frame_unpack(const uint8_t *p, uint64_t max_len,
                                           tcp_frame_t *frame_p)
{
    uint64_t word = tcp_wire_load64(p);

    frame_p->kind = (uint8_t)(word >> 32);
    frame_p->id = (uint8_t)(word >> 40);
    frame_p->header_len = (uint8_t)(word >> 48);
    frame_p->len = tcp_wire_load64(p + 8);
    if ((uint32_t)word != TCP_FRAME_MAGIC)
        return "a frame without its mark";
    if (word >> 56 != 0 ||
        (frame_p->kind != TCP_KIND_AM && frame_p->kind != TCP_KIND_GOODBYE))
        return "a frame of unknown kind";
    if (frame_p->header_len > PSC_AM_HEADER_MAX)
        return "a frame with too long a header";
    if (frame_p->len > max_len)
        return "a frame with an absurd length";
    return NULL;
}

/* The role is 'c' or 'a'. */
static inline void tcp_proof_make(const uint8_t token[PSC_TOKEN_SIZE],
                                  char role, uint64_t id,
                                  const uint8_t connector[TCP_NONCE_SIZE],
                                  const uint8_t acceptor[TCP_NONCE_SIZE],
                                  uint8_t proof_p[TCP_PROOF_SIZE])
{
    uint8_t text[64] = {0};

    text[0] = (uint8_t)role;
    tcp_wire_store64(text + 8, id);
    memcpy(text + 16, connector, TCP_NONCE_SIZE);
    memcpy(text + 32, acceptor, TCP_NONCE_SIZE);
    memcpy(text + 48, token + PSC_SIPHASH_KEY_SIZE,
           PSC_TOKEN_SIZE - PSC_SIPHASH_KEY_SIZE);
    psc_siphash(token, text, sizeof(text), proof_p);
}

#endif
