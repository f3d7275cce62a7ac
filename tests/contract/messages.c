/* Messages that check themselves: a pattern that shows shifted, swapped and
 * lost bytes, a sequence number, and the ways to send them. */
#include "harness.h"

#define PERIOD 251 /* prime, so that no power of two repeats */
#define TABLE (PERIOD * 256)

/* ---- patterns ---- */

static unsigned char pattern[TABLE + PERIOD];

/* Runs before main, so that threads only read the pattern. */
__attribute__((constructor)) static void pattern_prepare(void)
{
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (unsigned char)(i % PERIOD);
}

void ct_pattern_fill(void *buffer, size_t len, uint64_t seed)
{
    const unsigned char *table = pattern + seed % PERIOD;

    for (size_t at = 0; at < len; at += TABLE)
        memcpy((char *)buffer + at, table, len - at < TABLE ? len - at : TABLE);
}

bool ct_pattern_check(const void *buffer, size_t len, uint64_t seed)
{
    const unsigned char *table = pattern + seed % PERIOD;

    for (size_t at = 0; at < len; at += TABLE) {
        if (memcmp((const char *)buffer + at, table,
                   len - at < TABLE ? len - at : TABLE) != 0)
            return false;
    }
    return true;
}

/* ---- sending ---- */

static void send_completed(psc_comp_t *comp, psc_status_t status)
{
    ct_send_t *send = (ct_send_t *)comp;

    ct_check(!send->done, "completed twice");
    send->done = true;
    send->status = status;
}

void ct_send_make(ct_send_t *send)
{
    *send = (ct_send_t){.comp = {send_completed}};
}

size_t ct_longest(const ct_side_t *side, ct_kind_t kind)
{
    const psc_iface_attr_t *attr = &side->attr;

    if (kind == CT_ZCOPY)
        return attr->max_zcopy;
    return (kind == CT_SHORT ? attr->max_short : attr->max_bcopy) -
           sizeof(ct_header_t);
}

/* Cuts the payload into pieces of different lengths: 1 byte, 2 bytes and so
 * on. */
static size_t send_cut(char *buffer, size_t len, size_t pieces, psc_iov_t *iov)
{
    size_t at = 0, n = 0;

    while (n + 1 < pieces && at + n + 1 < len) {
        iov[n] = (psc_iov_t){buffer + at, n + 1};
        at += ++n;
    }
    iov[n] = (psc_iov_t){buffer + at, len - at};
    return n + 1;
}

static psc_status_t send_call(ct_end_t *end, ct_kind_t kind,
                              const ct_header_t *header, size_t pieces,
                              ct_send_t *send)
{
    const psc_transport_ops_t *ops = end->side->ops;
    psc_iov_t iov[64];
    size_t n = send_cut(send->buffer, header->len, pieces, iov);
    const uint8_t header_len = sizeof(*header);

    switch (kind) {
    case CT_SHORT:
        return ops->am_short(end->ep, CT_AM_ID, header, header_len,
                             send->buffer, header->len);
    case CT_ZCOPY:
        return ops->am_zcopy(end->ep, CT_AM_ID, header, header_len, iov, n,
                             &send->comp);
    default:
        return ops->am_bcopy(end->ep, CT_AM_ID, header, header_len, iov, n);
    }
}

psc_status_t ct_send_try(ct_end_t *end, ct_kind_t kind, size_t len,
                         size_t pieces, ct_send_t *send)
{
    ct_header_t header = {end->sent, len, end->sent * 17 + len};
    psc_status_t status;

    ct_send_make(send);
    send->buffer = malloc(len + 1);
    ct_pattern_fill(send->buffer, len, header.seed);
    status = send_call(end, kind, &header, pieces, send);
    if (status == PSC_OK || status == PSC_INPROGRESS)
        end->sent++;
    if (status == PSC_INPROGRESS) {
        ct_check(kind == CT_ZCOPY, "only zcopy may be in progress");
        return status;
    }
    send->done = true;
    send->status = status;
    /* The send has completed, so the transport must not read the buffer. */
    memset(send->buffer, 0xdd, len);
    return status;
}

void ct_send(ct_pair_t *pair, ct_end_t *end, ct_kind_t kind, size_t len,
             size_t pieces, ct_send_t *send)
{
    int64_t deadline = ct_deadline();
    psc_status_t status;

    while ((status = ct_send_try(end, kind, len, pieces, send)) ==
           PSC_ERR_NO_RESOURCE) {
        free(send->buffer);
        ct_pair_progress(pair);
        ct_check(psc_clock_now() < deadline, "no room for %zu bytes", len);
    }
    ct_check(status >= 0, "send: %s", psc_status_string(status));
}

void ct_send_finish(ct_pair_t *pair, ct_send_t *send)
{
    ct_until(pair, send->done);
    ct_check(send->status == PSC_OK, "send: %s",
             psc_status_string(send->status));
    free(send->buffer);
    send->buffer = NULL;
}

void ct_exchange(ct_pair_t *pair, ct_end_t *from, ct_end_t *to, ct_kind_t kind,
                 size_t len, size_t pieces)
{
    ct_send_t send;

    ct_send(pair, from, kind, len, pieces, &send);
    ct_send_finish(pair, &send);
    ct_until(pair, to->received == from->sent || to->failed);
    ct_check(!to->failed, "%s", to->reason);
}
