/* Cases: registration, put, get, flush, and forged rkeys. */
#include "harness.h"

#define REGION 100000u

typedef struct rma {
    ct_pair_t pair;
    unsigned char target[REGION], local[REGION];
    psc_mem_t *target_mem, *local_mem;
    uint8_t packed[PSC_RKEY_MAX];
    size_t packed_len;
    psc_rkey_t *rkey;
} rma_t;

static rma_t rma; /* large, and zero at the start of each process */

static void rma_up(void)
{
    psc_status_t status;

    ct_pair_up(&rma.pair);
    status = ct_ops->mem_register(rma.pair.b->iface, rma.pair.y.ep, rma.target,
                                  REGION, &rma.target_mem);
    ct_check(status == PSC_OK, "%s", psc_status_string(status));
    status = ct_ops->mem_register(rma.pair.a->iface, rma.pair.x.ep, rma.local,
                                  REGION, &rma.local_mem);
    ct_check(status == PSC_OK, "%s", psc_status_string(status));
    rma.packed_len = sizeof(rma.packed);
    ct_check(ct_ops->rkey_pack(rma.pair.b->iface, rma.target_mem, rma.packed,
                               &rma.packed_len) == PSC_OK,
             "rkey_pack");
    ct_check(rma.packed_len > 0 && rma.packed_len <= PSC_RKEY_MAX, "length");
    ct_check(ct_ops->rkey_unpack(rma.pair.x.ep, rma.packed, rma.packed_len,
                                 &rma.rkey) == PSC_OK,
             "rkey_unpack");
}

static void rma_down(void)
{
    ct_ops->rkey_release(rma.pair.x.ep, rma.rkey);
    ct_ops->mem_deregister(rma.pair.a->iface, rma.local_mem);
    ct_ops->mem_deregister(rma.pair.b->iface, rma.target_mem);
    ct_pair_down(&rma.pair);
}

/* Waits for a call that was started. Returns false if there was no room. */
static bool rma_wait(ct_send_t *send, psc_status_t status)
{
    if (status == PSC_ERR_NO_RESOURCE) {
        ct_pair_progress(&rma.pair);
        return false;
    }
    ct_check(status >= 0, "%s", psc_status_string(status));
    if (status == PSC_INPROGRESS) {
        ct_until(&rma.pair, send->done);
        ct_check(send->status == PSC_OK, "%s", psc_status_string(send->status));
    }
    return true;
}

static void rma_put(size_t at, size_t len)
{
    ct_send_t send;

    do {
        ct_send_make(&send);
    } while (
        !rma_wait(&send, ct_ops->put(rma.pair.x.ep, rma.local + at, len,
                                     rma.local_mem, rma.rkey, at, &send.comp)));
    if (ct_side_can(rma.pair.a, PSC_CAP_PUT_REMOTE))
        return;
    do {
        ct_send_make(&send);
    } while (!rma_wait(&send, ct_ops->ep_flush(rma.pair.x.ep, &send.comp)));
}

static void rma_get(size_t at, size_t len)
{
    ct_send_t send;

    do {
        ct_send_make(&send);
    } while (
        !rma_wait(&send, ct_ops->get(rma.pair.x.ep, rma.local + at, len,
                                     rma.local_mem, rma.rkey, at, &send.comp)));
}

/* Checks that only the bytes at `at` have changed. */
static void rma_check(const unsigned char *region, const unsigned char *other,
                      size_t at, size_t len)
{
    for (size_t i = 0; i < REGION; i++) {
        unsigned char right = i - at < len ? other[i] : 0;

        ct_check(region[i] == right, "byte %zu of put/get %zu+%zu", i, at, len);
    }
}

static const struct {
    size_t at, len;
} spans[] = {{0, 1},          {1, 7},      {0, 4096}, {4095, 4098},
             {REGION - 1, 1}, {0, REGION}, {77, 0}};

CASE(put_lands, .caps = PSC_CAP_PUT)
{
    rma_up();
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        memset(rma.target, 0, REGION);
        ct_pattern_fill(rma.local, REGION, i + 1);
        rma_put(spans[i].at, spans[i].len);
        rma_check(rma.target, rma.local, spans[i].at, spans[i].len);
    }
    rma_down();
}

CASE(get_fetches, .caps = PSC_CAP_GET)
{
    rma_up();
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        memset(rma.local, 0, REGION);
        ct_pattern_fill(rma.target, REGION, i + 1);
        rma_get(spans[i].at, spans[i].len);
        rma_check(rma.local, rma.target, spans[i].at, spans[i].len);
    }
    rma_down();
}

/* A message sent right after a put must find the bytes of the put. */
static void look(ct_end_t *end)
{
    ct_check(rma.target[REGION - 1] == (unsigned char)end->received,
             "message %llu came before its put",
             (unsigned long long)end->received);
}

CASE(put_then_message, .caps = PSC_CAP_PUT | PSC_CAP_PUT_THEN_AM)
{
    ct_send_t put, send;

    rma_up();
    rma.pair.y.on_message = look;
    for (unsigned i = 1; i <= 200; i++) {
        memset(rma.local, (int)i, REGION);
        ct_send_make(&put);
        psc_status_t status =
            ct_ops->put(rma.pair.x.ep, rma.local, REGION, rma.local_mem,
                        rma.rkey, 0, &put.comp);
        if (status == PSC_ERR_NO_RESOURCE) {
            i--;
            ct_pair_progress(&rma.pair);
            continue;
        }
        ct_send(&rma.pair, &rma.pair.x, CT_BCOPY, 0, 1, &send);
        ct_send_finish(&rma.pair, &send);
        ct_until(&rma.pair, rma.pair.y.received == i);
        rma_wait(&put, status);
    }
    rma_down();
}

static psc_status_t put_am(uint64_t at, size_t len, psc_comp_t *comp)
{
    ct_header_t header = {.seq = rma.pair.x.sent};

    return ct_ops->put_am(rma.pair.x.ep, CT_AM_ID, &header, sizeof header,
                          rma.local, len, rma.local_mem, rma.rkey, at, comp);
}

/* The message behind a put finds its bytes, and comes in the order of all
 * messages; the sender need not do anything meanwhile. */
CASE(put_am_is_one_operation, .caps = PSC_CAP_PUT_AM)
{
    ct_send_t put;
    psc_status_t status;
    int64_t deadline = ct_deadline();

    rma_up();
    for (unsigned i = 0; i < 200; i++) {
        memset(rma.local, (int)rma.pair.x.sent + 1, REGION);
        ct_send_make(&put);
        status = put_am(0, REGION, &put.comp);
        if (status == PSC_ERR_NO_RESOURCE) {
            ct_pair_progress(&rma.pair);
            continue;
        }
        ct_check(status >= 0, "%s", psc_status_string(status));
        rma.pair.x.sent++;
        rma.pair.y.on_message = look;
        while (rma.pair.y.received < rma.pair.x.sent) {
            ct_side_progress(rma.pair.b);
            ct_check(psc_clock_now() < deadline, "put %u", i);
        }
        rma.pair.y.on_message = NULL;
        rma_wait(&put, status);
        ct_exchange(&rma.pair, &rma.pair.x, &rma.pair.y, CT_BCOPY, i, 1);
    }
    ct_check(rma.pair.x.sent > 200, "%llu messages",
             (unsigned long long)rma.pair.x.sent);
    rma_down();
}

/* Neither the bytes nor the message arrive. */
CASE(put_am_outside_is_refused, .caps = PSC_CAP_PUT_AM)
{
    static const struct {
        uint64_t at;
        size_t len;
    } outside[] = {
        {REGION, 1}, {1, REGION}, {UINT64_MAX, 1}, {UINT64_MAX - 7, 16}};
    ct_send_t send;

    rma_up();
    memset(rma.local, 0x55, REGION);
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        ct_send_make(&send);
        ct_check(put_am(outside[i].at, outside[i].len, &send.comp) ==
                     PSC_ERR_INVALID,
                 "at %llu", (unsigned long long)outside[i].at);
    }
    ct_exchange(&rma.pair, &rma.pair.x, &rma.pair.y, CT_BCOPY, 10, 1);
    rma_check(rma.target, rma.local, 0, 0);
    rma_down();
}

/* Checks that the bytes of the target, which are 7, were not written, and
 * registers it again. */
static void rma_unwritten(void)
{
    for (size_t i = 0; i < 100; i++)
        ct_check(rma.target[i] == 7, "byte %zu was written", i);
    ct_check(ct_ops->mem_register(rma.pair.b->iface, rma.pair.y.ep, rma.target,
                                  REGION, &rma.target_mem) == PSC_OK,
             "registered again");
}

/* The key of memory that is deregistered: no byte and no message arrives, and
 * an endpoint that breaks says what was refused. */
CASE(put_am_with_a_stale_key, .caps = PSC_CAP_PUT_AM)
{
    ct_send_t put;
    psc_status_t status;

    rma_up();
    rma_put(0, 10);
    memset(rma.target, 7, 100);
    ct_ops->mem_deregister(rma.pair.b->iface, rma.target_mem);
    do {
        ct_send_make(&put);
        status = put_am(0, 100, &put.comp);
        ct_pair_progress(&rma.pair);
    } while (status == PSC_ERR_NO_RESOURCE);
    if (status == PSC_INPROGRESS) {
        ct_until(&rma.pair, put.done && rma.pair.x.failed);
        status = put.status;
        ct_check(strstr(rma.pair.x.reason, "refused"), "%s", rma.pair.x.reason);
    }
    ct_check(status == PSC_ERR_INVALID, "%s", psc_status_string(status));
    ct_check(rma.pair.y.received == 0, "the message came");
    rma_unwritten();
    rma_down();
}

/* Checks that the call fails at once or through its completion, and that no
 * byte is transferred. */
static void rma_refused(psc_status_t status, ct_send_t *send)
{
    if (status == PSC_INPROGRESS) {
        ct_until(&rma.pair, send->done);
        status = send->status;
    }
    ct_check(status < 0 && status != PSC_ERR_NO_RESOURCE, "%s",
             psc_status_string(status));
}

CASE(put_outside_is_refused, .caps = PSC_CAP_PUT)
{
    const struct {
        uint64_t at;
        size_t len;
    } outside[] = {{REGION, 1},
                   {1, REGION},
                   {REGION + 1, 0},
                   {UINT64_MAX, 1},
                   {UINT64_MAX - 7, 16}};
    ct_send_t send;

    rma_up();
    memset(rma.local, 0x55, REGION);
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        ct_send_make(&send);
        rma_refused(ct_ops->put(rma.pair.x.ep, rma.local, outside[i].len,
                                rma.local_mem, rma.rkey, outside[i].at,
                                &send.comp),
                    &send);
    }
    rma_check(rma.target, rma.local, 0, 0);
    rma_put(0, 10); /* the endpoint still works */
    rma_down();
}

CASE(damaged_rkey_is_refused, .caps = PSC_CAP_PUT)
{
    uint8_t damaged[PSC_RKEY_MAX];
    psc_rkey_t *rkey;
    unsigned refused = 0;

    rma_up();
    for (size_t cut = 0; cut < rma.packed_len; cut++)
        ct_check(ct_ops->rkey_unpack(rma.pair.x.ep, rma.packed, cut, &rkey) < 0,
                 "an rkey of %zu bytes", cut);
    for (size_t i = 0; i < rma.packed_len; i++) {
        memcpy(damaged, rma.packed, rma.packed_len);
        damaged[i] ^= 0xff;
        if (ct_ops->rkey_unpack(rma.pair.x.ep, damaged, rma.packed_len,
                                &rkey) == PSC_OK)
            ct_ops->rkey_release(rma.pair.x.ep, rkey);
        else
            refused++;
    }
    printf("%u of %zu damaged rkeys were refused at once\n", refused,
           rma.packed_len);
    rma_down();
}

/* The key is refused, at once or by the completion; before that there may be no
 * room. */
static void rma_stale(bool get)
{
    ct_send_t send;
    psc_status_t status;
    int64_t deadline = ct_deadline();

    do {
        ct_check(psc_clock_now() < deadline, "no room for a refusal");
        ct_send_make(&send);
        status = get ? ct_ops->get(rma.pair.x.ep, rma.local, 10, rma.local_mem,
                                   rma.rkey, 0, &send.comp)
                     : ct_ops->put(rma.pair.x.ep, rma.local, 10, rma.local_mem,
                                   rma.rkey, 0, &send.comp);
        ct_pair_progress(&rma.pair);
    } while (status == PSC_ERR_NO_RESOURCE);
    rma_refused(status, &send);
}

/* A key outlives its registration: the memory is not accessed any more, and the
 * endpoint survives the attempt. */
CASE(deregistered_is_refused, .caps = PSC_CAP_PUT)
{
    ct_send_t send;

    rma_up();
    rma_put(0, 10);
    memset(rma.target, 7, 100);
    ct_ops->mem_deregister(rma.pair.b->iface, rma.target_mem);
    rma_stale(false);
    if (ct_side_can(rma.pair.a, PSC_CAP_GET))
        rma_stale(true);
    rma_unwritten();
    rma_stale(false); /* the old key is not valid for the new registration */
    ct_send(&rma.pair, &rma.pair.x, CT_BCOPY, 10, 1, &send);
    ct_send_finish(&rma.pair, &send);
    ct_until(&rma.pair, rma.pair.y.received == rma.pair.x.sent);
    rma_down();
}

/* No peer is writing: mem_revoke returns PSC_OK, and the key is refused
 * afterwards. */
CASE(revoked_is_refused, .caps = PSC_CAP_PUT)
{
    psc_mem_t *mem;

    if (!ct_ops->mem_revoke)
        ct_skip("%s has no mem_revoke", ct_ops->name);
    rma_up();
    mem = rma.target_mem;
    rma_put(0, 10);
    memset(rma.target, 7, 100);
    ct_until(&rma.pair, ct_ops->mem_revoke(rma.pair.b->iface, mem) == PSC_OK);
    rma_stale(false);
    ct_check(ct_ops->mem_revoke(rma.pair.b->iface, mem) == PSC_OK, "again");
    ct_ops->mem_deregister(rma.pair.b->iface, mem);
    rma_stale(false);
    rma_unwritten();
    rma_down();
}

/* The target ends its endpoint while puts are in flight: none of their bytes
 * arrives after that. */
CASE(puts_end_with_the_endpoint, .caps = PSC_CAP_PUT_ENDS)
{
    enum { PUTS = 8 };
    ct_send_t sends[PUTS];
    psc_status_t status[PUTS];

    rma_up();
    memset(rma.local, 1, REGION);
    for (int i = 0; i < PUTS; i++) {
        ct_send_make(&sends[i]);
        status[i] = ct_ops->put(rma.pair.x.ep, rma.local, REGION, rma.local_mem,
                                rma.rkey, 0, &sends[i].comp);
    }
    ct_end_destroy(&rma.pair.y, NULL);
    memset(rma.target, 0, REGION);
    ct_until(&rma.pair, rma.pair.x.failed);
    for (int i = 0; i < PUTS; i++)
        ct_until(&rma.pair, status[i] != PSC_INPROGRESS || sends[i].done);
    for (size_t i = 0; i < REGION; i++)
        ct_check(rma.target[i] == 0, "byte %zu was written", i);
    rma_down();
}
