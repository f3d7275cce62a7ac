/* Buffers that are offered together. Side a offers, side b fetches; the bytes
 * of the offer are passed by hand. */
#include "harness.h"
#include "hostile.h"
#include "pscompy/core/conn.h"

enum { PARTS = 7, LONGEST = 300000, ROOM = PARTS * PSC_OFFER_PART_MAX };

static const size_t lengths[PARTS] = {65536, 1, 0, 20000, LONGEST, 4097, 0};

typedef struct bundle {
    pair_t pair;
    char *out[PARTS], *in[PARTS];
    psc_iov_t from[PARTS], to[PARTS];
    uint8_t offer[ROOM];
    size_t len;
    psc_request_t *offered;
} bundle_t;

static psc_send_args_t args_of(const psc_iov_t *iov, size_t n)
{
    return (psc_send_args_t){.context = CONTEXT, .iov = iov, .n_iov = n};
}

static void bundle_offer(bundle_t *bundle, psc_conn_t *conn)
{
    psc_send_args_t args = args_of(bundle->from, PARTS);

    bundle->len = ROOM;
    check(api->offer(conn, &args, bundle->offer, &bundle->len,
                     &bundle->offered) == PSC_INPROGRESS);
    check(bundle->len <= ROOM);
}

static void bundle_memory(bundle_t *bundle)
{
    for (unsigned i = 0; i < PARTS; i++) {
        bundle->out[i] = malloc(lengths[i] + 1);
        bundle->in[i] = calloc(1, lengths[i] + 1);
        check(bundle->out[i] && bundle->in[i]);
        fill(bundle->out[i], lengths[i], i);
        bundle->from[i] = (psc_iov_t){bundle->out[i], lengths[i]};
        bundle->to[i] = (psc_iov_t){bundle->in[i], lengths[i]};
    }
}

static bundle_t *bundle_open(void)
{
    bundle_t *bundle = calloc(1, sizeof *bundle);

    check(bundle);
    bundle_memory(bundle);
    pair_open(&bundle->pair);
    psc_worker_log_to(bundle->pair.a.worker, -1, 0);
    psc_worker_log_to(bundle->pair.b.worker, -1, 0);
    bundle_offer(bundle, bundle->pair.a.conn);
    return bundle;
}

static psc_status_t bundle_fetch(bundle_t *bundle, psc_conn_t *conn,
                                 const uint8_t *offer, size_t len,
                                 psc_request_t **request_p)
{
    psc_send_args_t args = args_of(bundle->to, PARTS);

    return api->fetch(conn, &args, offer, len, request_p);
}

static void bundle_finish(bundle_t *bundle, psc_conn_t *conn)
{
    psc_request_t *fetched;
    psc_result_t result;

    check(bundle_fetch(bundle, conn, bundle->offer, bundle->len, &fetched) ==
          PSC_INPROGRESS);
    result = finish(&bundle->pair, fetched);
    check(result.status == PSC_OK);
    check(finish(&bundle->pair, bundle->offered).status == PSC_OK);
    for (unsigned i = 0; i < PARTS; i++)
        check(filled(bundle->in[i], lengths[i], i));
}

static void bundle_free(bundle_t *bundle)
{
    for (unsigned i = 0; i < PARTS; i++) {
        free(bundle->out[i]);
        free(bundle->in[i]);
    }
    free(bundle);
}

static void bundle_close(bundle_t *bundle)
{
    pair_close(&bundle->pair);
    bundle_free(bundle);
}

/* ---- transfers ---- */

/* By gets if there are any, else by fragments: one FIN, and never an RTS. */
static void transfer(psc_rndv_scheme_t scheme)
{
    bundle_t *bundle;
    pair_t *pair;
    bool gets;

    options.scheme = scheme;
    bundle = bundle_open();
    pair = &bundle->pair;
    gets = pair->b.conn->lanes[0]->slot->attr.caps & PSC_CAP_GET &&
           (scheme == PSC_RNDV_AUTO || scheme == PSC_RNDV_GET);
    bundle_finish(bundle, pair->b.conn);
    check(count(pair->a.worker, PSC_COUNTER_rndv_rts) == 0);
    check(count(pair->b.worker, PSC_COUNTER_rndv_fin) == 1);
    check(count(pair->a.worker, PSC_COUNTER_rndv_am) == !gets);
    check(count(pair->a.worker, PSC_COUNTER_offered) == PARTS);
    check(count(pair->b.worker, PSC_COUNTER_fetched) == PARTS);
    bundle_close(bundle);
}

CASE(bundles)
{
    transfer(PSC_RNDV_AUTO);
    transfer(PSC_RNDV_GET);
    transfer(PSC_RNDV_PUT);
    transfer(PSC_RNDV_AM);
}

/* unlike: the lanes that cannot get */
static void fetch_over_lanes(unsigned unlike)
{
    bundle_t *bundle = bundle_open();
    psc_conn_t *a, *b;

    options.unlike = (uint8_t)unlike;
    bundle_finish(bundle, bundle->pair.b.conn);
    pair_join_by(&bundle->pair, LANES, &a, &b);
    for (unsigned i = 0; i < PARTS; i++)
        memset(bundle->in[i], 0, lengths[i]);
    bundle_offer(bundle, a);
    bundle_finish(bundle, b);
    bundle_close(bundle);
}

CASE(bundle_over_lanes)
{
    for (unsigned unlike = 0; unlike < 1u << LANES; unlike++)
        fetch_over_lanes(unlike);
}

/* The bundle is fetched although this lane of the origin or the target fails,
 * if it may, after so many passes, or before the fetch begins. */
static void fetch_although_a_lane_fails(int passes, bool target, uint32_t index)
{
    bundle_t *bundle = bundle_open();
    psc_request_t *fetched;
    psc_conn_t *a, *b;
    psc_lane_t *lane;

    bundle_finish(bundle, bundle->pair.b.conn);
    pair_join_by(&bundle->pair, LANES, &a, &b);
    lane = (target ? a : b)->lanes[index];
    if (psc_lane_spare(lane)) {
        for (unsigned i = 0; i < PARTS; i++)
            memset(bundle->in[i], 0, lengths[i]);
        bundle_offer(bundle, a);
        if (passes == 0)
            lane_fail(lane);
        check(bundle_fetch(bundle, b, bundle->offer, bundle->len, &fetched) ==
              PSC_INPROGRESS);
        for (int i = 0; i < passes; i++)
            pair_progress(&bundle->pair);
        lane_fail(lane);
        check(finish(&bundle->pair, fetched).status == PSC_OK);
        check(finish(&bundle->pair, bundle->offered).status == PSC_OK);
        for (unsigned i = 0; i < PARTS; i++)
            check(filled(bundle->in[i], lengths[i], i));
    }
    bundle_close(bundle);
}

CASE(bundle_although_a_lane_fails)
{
    for (int passes = 0; passes < 18; passes++) {
        options.unlike = (uint8_t)(passes % 3);
        fetch_although_a_lane_fails(passes / 2, passes % 4 < 2, passes % 2);
    }
}

/* ---- ends ---- */

/* An offer whose message was not sent is withdrawn; so is none that does not
 * fit. */
CASE(bundle_withdrawn)
{
    bundle_t *bundle = bundle_open();
    psc_iov_t many[PSC_OFFER_PARTS_MAX + 1] = {{NULL, 0}};
    psc_send_args_t args = args_of(many, PSC_OFFER_PARTS_MAX + 1);
    size_t len = sizeof many * PSC_OFFER_PART_MAX;
    psc_request_t *request;

    check(api->cancel(bundle->offered) == PSC_OK);
    check(finish(&bundle->pair, bundle->offered).status == PSC_ERR_CANCELLED);
    check(api->offer(bundle->pair.a.conn, &args, bundle->offer, &len,
                     &request) == PSC_ERR_UNSUPPORTED);
    args = args_of(bundle->from, PARTS);
    len = ROOM - 1;
    check(api->offer(bundle->pair.a.conn, &args, bundle->offer, &len,
                     &request) == PSC_ERR_INVALID);
    bundle_close(bundle);
}

CASE(bundle_refused)
{
    bundle_t *bundle = bundle_open();
    psc_send_args_t none = args_of(bundle->to, 0);
    psc_conn_t *conn = bundle->pair.b.conn;
    psc_request_t *request;

    check(api->fetch(conn, &none, bundle->offer, 7, &request) ==
          PSC_ERR_PROTOCOL);
    check(api->fetch(conn, &none, bundle->offer, bundle->len, &request) ==
          PSC_INPROGRESS);
    check(finish(&bundle->pair, request).status == PSC_ERR_NO_MEMORY);
    check(finish(&bundle->pair, bundle->offered).status == PSC_ERR_NO_MEMORY);
    bundle_offer(bundle, bundle->pair.a.conn);
    bundle_finish(bundle, conn);
    bundle_close(bundle);
}

static void end_at(bool sender, bool fetching)
{
    bundle_t *bundle = bundle_open();
    pair_t *pair = &bundle->pair;
    psc_request_t *fetched = NULL;

    if (fetching)
        check(bundle_fetch(bundle, pair->b.conn, bundle->offer, bundle->len,
                           &fetched) == PSC_INPROGRESS);
    psc_conn_fail(sender ? pair->a.conn : pair->b.conn, PSC_ERR_PEER_LOST);
    until(pair, psc_conn_ended(pair->a.conn) && psc_conn_ended(pair->b.conn));
    finish(pair, bundle->offered);
    if (fetching)
        finish(pair, fetched);
    else
        check(bundle_fetch(bundle, pair->b.conn, bundle->offer, bundle->len,
                           &fetched) < 0);
    bundle_close(bundle);
}

/* The connection is lost before the fetch, or during it: both requests end. */
CASE(bundle_and_end)
{
    for (int i = 0; i < 4; i++)
        end_at(i & 1, i & 2);
}

/* ---- offers that lie ---- */

static unsigned dice_state = 5;

static unsigned dice(unsigned sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

static void refused(bundle_t *bundle, const uint8_t *offer, size_t len)
{
    psc_request_t *request;

    check(bundle_fetch(bundle, bundle->pair.b.conn, offer, len, &request) ==
          PSC_ERR_PROTOCOL);
}

/* Returns a copy of the offer with `n` bytes at `at` replaced. */
static uint8_t *forged(const bundle_t *bundle, size_t at, const void *bytes,
                       size_t n)
{
    static uint8_t copy[ROOM];

    memcpy(copy, bundle->offer, bundle->len);
    memcpy(copy + at, bytes, n);
    return copy;
}

static void refuse_heads(bundle_t *bundle)
{
    static const uint32_t numbers[] = {0, PARTS - 1, PARTS + 1, 1000000,
                                       UINT32_MAX};
    size_t at = offsetof(psc_wire_offer_t, n_parts);
    uint64_t lens[] = {0, lengths[0] - 1, 1ull << 40, UINT64_MAX};

    for (size_t len = 0; len < bundle->len; len++)
        refused(bundle, bundle->offer, len);
    refused(bundle, bundle->offer, bundle->len + 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        refused(bundle, forged(bundle, at, &numbers[i], sizeof *numbers),
                bundle->len);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        refused(
            bundle,
            forged(bundle, sizeof(psc_wire_offer_t), &lens[i], sizeof *lens),
            bundle->len);
}

/* Random bytes in place of some: refused, or fetched with any result; b's
 * worker survives, and so does this connection unless the id was forged. */
static void fuzz(bundle_t *bundle)
{
    uint8_t copy[ROOM];
    psc_request_t *fetched;

    memcpy(copy, bundle->offer, bundle->len);
    for (unsigned n = 1 + dice(3); n > 0; n--)
        copy[dice((unsigned)bundle->len)] = (uint8_t)dice(256);
    if (bundle_fetch(bundle, bundle->pair.b.conn, copy, bundle->len,
                     &fetched) == PSC_INPROGRESS) {
        settle(&bundle->pair);
        api->request_free(fetched);
    }
    api->request_free(bundle->offered);
    hostile_part(&bundle->pair);
}

CASE(hostile_offers)
{
    bundle_t *bundle = bundle_open();

    refuse_heads(bundle);
    bundle_finish(bundle, bundle->pair.b.conn);
    bundle_close(bundle);
    for (int round = 0; round < 40; round++) {
        bundle = bundle_open();
        fuzz(bundle);
        bundle_free(bundle);
    }
}
