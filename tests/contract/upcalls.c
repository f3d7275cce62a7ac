/* The upcalls of a side: they check the messages that arrive. */
#include "harness.h"

#define CT_TAKEN_BYTE 0x55

static void end_count(ct_end_t *end, const ct_header_t *header, bool begun)
{
    ct_check(header->seq == end->received, "message %llu came as number %llu",
             (unsigned long long)header->seq,
             (unsigned long long)end->received);
    end->received++;
    end->begun += begun;
    if (end->on_message)
        end->on_message(end);
}

static void end_check_header(const ct_end_t *end, uint8_t id,
                             const void *header, uint8_t header_len)
{
    ct_check(!end->failed, "a message after ep_failed");
    ct_check(!end->in_body, "a message inside another one's body");
    ct_check(id == CT_AM_ID, "id %d", id);
    ct_check(header_len == sizeof(ct_header_t), "header of %d", header_len);
    ct_check((uintptr_t)header % 8 == 0, "header not aligned");
}

static psc_status_t ct_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    ct_end_t *end = ep->user;
    ct_header_t header;

    end_check_header(end, am->id, am->header, am->header_len);
    memcpy(&header, am->header, sizeof(header));
    ct_check(am->len == header.len, "%zu bytes came", am->len);
    ct_check(ct_pattern_check(am->payload, am->len, header.seed), "payload");
    if (end->hold && am->desc) {
        ct_check(end->n_held < CT_HELD_MAX, "unbounded slots");
        end->held[end->n_held++] = am->desc;
        end_count(end, &header, false);
        return PSC_INPROGRESS;
    }
    end_count(end, &header, false);
    return PSC_OK;
}

/* Seven pieces of 1 to 7 bytes, then one piece with the rest. */
static size_t end_scatter(ct_end_t *end)
{
    size_t at = 0, n = 0;

    while (n < 7 && at + n + 1 <= end->body_room) {
        end->body_iov[n] = (psc_iov_t){end->body_buffer + at, n + 1};
        at += ++n;
    }
    end->body_iov[n] = (psc_iov_t){end->body_buffer + at, end->body_room - at};
    return n + 1;
}

static void ct_am_begin(psc_ep_t *ep, uint8_t id, const void *header,
                        uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    ct_end_t *end = ep->user;

    end_check_header(end, id, header, header_len);
    memcpy(&end->body, header, sizeof(end->body));
    ct_check(len == end->body.len, "%llu bytes announced",
             (unsigned long long)len);
    end->in_body = true;
    end->body_taken = false;
    end->body_room = end->landing == CT_NOWHERE ? 0
                     : end->landing == CT_HALF  ? len / 2
                                                : len;
    end->body_buffer = malloc(end->body_room + 1);
    end->body_iov[0] = (psc_iov_t){end->body_buffer, end->body_room};
    dest_p->iov = end->body_iov;
    dest_p->n_iov = end->landing == CT_NOWHERE   ? 0
                    : end->landing == CT_SCATTER ? end_scatter(end)
                                                 : 1;
    dest_p->cookie = end->body_buffer;
}

bool ct_end_take(ct_end_t *end)
{
    if (!end->in_body || end->body_taken)
        return false;
    for (size_t i = 0; i < 8; i++)
        end->body_iov[i].len = 0;
    memset(end->body_buffer, CT_TAKEN_BYTE, end->body_room);
    end->body_taken = true;
    return true;
}

/* True if memory that was withdrawn has not been written to since. */
static bool end_body_right(const ct_end_t *end)
{
    if (!end->body_taken)
        return ct_pattern_check(end->body_buffer, end->body_room,
                                end->body.seed);
    for (size_t i = 0; i < end->body_room; i++) {
        if ((unsigned char)end->body_buffer[i] != CT_TAKEN_BYTE)
            return false;
    }
    return true;
}

static void ct_am_end(psc_ep_t *ep, void *cookie)
{
    ct_end_t *end = ep->user;

    ct_check(end->in_body, "am_end without am_begin");
    ct_check(cookie == end->body_buffer, "wrong cookie");
    ct_check(end_body_right(end), "payload of message %llu",
             (unsigned long long)end->body.seq);
    free(end->body_buffer);
    end->body_buffer = NULL;
    end->in_body = false;
    end_count(end, &end->body, true);
}

/* The seed of the payload is the message's match bits. */
static void ct_tag_unexpected(psc_ep_t *ep, uint64_t bits, const void *payload,
                              size_t len)
{
    ct_end_t *end = ep->user;

    ct_check(ct_pattern_check(payload, len, bits), "payload of %llx",
             (unsigned long long)bits);
    end->unexpected_bits[end->unexpected++ % CT_UNEXPECTED_MAX] = bits;
}

static void ct_tag_missed(psc_ep_t *ep, uint64_t bits, size_t len,
                          uint32_t number)
{
    ct_end_t *end = ep->user;

    end->missed_len = len;
    end->missed_number = number;
    end->unexpected_bits[end->unexpected++ % CT_UNEXPECTED_MAX] = bits;
}

static void ct_ep_up(psc_ep_t *ep)
{
    ct_end_t *end = ep->user;

    ct_check(!end->up && !end->failed, "up twice or after a failure");
    end->up = true;
}

static void ct_ep_failed(psc_ep_t *ep, psc_status_t status, const char *reason)
{
    ct_end_t *end = ep->user;

    ct_check(!end->failed, "failed twice");
    ct_check(status < 0, "failed with %d", status);
    ct_check(reason && *reason && strlen(reason) < PSC_REASON_MAX, "reason");
    end->failed = true;
    end->status = status;
    strcpy(end->reason, reason);
    free(end->body_buffer);
    end->body_buffer = NULL;
    end->in_body = false;
}

static void ct_log(psc_iface_t *iface, int level, const char *line)
{
    (void)iface;
    fprintf(stderr, "log %d: %s\n", level, line);
}

static void ct_holding(psc_iface_t *iface, int holding)
{
    ct_side_t *side = iface->user;

    ct_check(holding != side->holding, "told %d twice", holding);
    side->holding = holding;
}

const psc_upcalls_t ct_upcalls = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_upcalls_t),
    .am_recv = ct_am_recv,
    .am_begin = ct_am_begin,
    .am_end = ct_am_end,
    .ep_up = ct_ep_up,
    .ep_failed = ct_ep_failed,
    .log = ct_log,
    .tag_unexpected = ct_tag_unexpected,
    .tag_missed = ct_tag_missed,
    .holding = ct_holding,
};
