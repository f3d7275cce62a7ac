/* The bytes on a stream and in an endpoint's address, all little-endian. A
 * number behind a name is a length in bytes.
 *
 * Address   version 1, count 1, 0 (6 bytes), host id 8, endpoint id 8, then
 *           per address: family 1 (4 or 6), 0, port 2, the 4 or 16 bytes
 * Hello     magic 8, the acceptor's endpoint id 8, nonce 16     connector
 * Challenge magic 8, nonce 16, proof 16                         acceptor
 * Answer    proof 16                                            connector
 * Frame     magic 4, kind 1, id 1, header length 1, 0, payload length 8,
 *           then header and payload
 *
 * Hello, challenge and answer are the messages of the token proof
 * (transport/kit/token_proof.h), told apart by their order. Instead of a
 * refusal, the socket is closed. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "pscompy/transport/kit/token_proof.h"

#define TCP_ADDRESS_VERSION 1u
#define TCP_ADDRESS_HEAD 24u
#define TCP_ADDRESSES_MAX 16u

#define TCP_HELLO_MAGIC 0x32304f4c50435350ull /* the bytes "PSCPLO02" */
#define TCP_CHALLENGE_MAGIC 0x3230484350435350ull /* the bytes "PSCPCH02" */
#define TCP_HELLO_SIZE (16u + PSC_PROOF_NONCE_SIZE)
#define TCP_CHALLENGE_SIZE (8u + PSC_PROOF_CHALLENGE_SIZE)

#define TCP_FRAME_MAGIC 0x70637363u /* the bytes "cscp" */
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
    tcp_wire_store64(
        p, (uint64_t)TCP_FRAME_MAGIC | (uint64_t)frame->kind << 32 |
               (uint64_t)frame->id << 40 | (uint64_t)frame->header_len << 48);
    tcp_wire_store64(p + 8, frame->len);
}

/* Unpacks a frame header. Returns NULL, or a text that says why the frame is
 * invalid. */
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
    if (frame_p->kind == TCP_KIND_GOODBYE && frame_p->len > 0)
        return "a goodbye with a payload";
    if (frame_p->len > max_len)
        return "a frame with an absurd length";
    return NULL;
}
