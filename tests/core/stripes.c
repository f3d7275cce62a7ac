/* The lane that gets a piece of a long message, by the rates of the lanes. */
#include "measured.h"
#include "pscompy/core/worker.h"

enum { PIECE = 256 << 10 };

typedef struct measured {
    psc_conn_t conn;
    psc_lane_t lanes[2];
    psc_req_t req; /* of the pieces in flight */
    psc_iface_slot_t slot;
    psc_worker_t worker;
} measured_t;

/* Two lanes that were measured to carry so many bytes per ns. */
static measured_t *measured_new(double first, double second)
{
    measured_t *it = calloc(1, sizeof *it);

    it->conn.n_lanes = 2;
    for (uint32_t i = 0; i < 2; i++) {
        it->conn.lanes[i] = &it->lanes[i];
        it->lanes[i].conn = &it->conn;
        it->lanes[i].slot = &it->slot;
        it->lanes[i].worker = &it->worker;
        it->lanes[i].index = (uint8_t)i;
        measured_as(&it->lanes[i], i ? second : first);
    }
    return it;
}

/* Have pieces sent until none may be any more, with so many bytes left each
 * time. Returns the number on the first lane, and ten times that on the
 * second. */
static int measured_fill(measured_t *it, uint64_t left)
{
    psc_lane_t *lane;
    int sent = 0;

    while ((lane = psc_stripe_lane(&it->conn, left, PIECE, 0, 0))) {
        psc_stripe_sent(lane, psc_stripe_piece(lane), &it->req, PIECE);
        sent += lane->index ? 10 : 1;
    }
    return sent;
}

static int fill_once(double first, double second, uint64_t left)
{
    measured_t *it = measured_new(first, second);
    int sent = measured_fill(it, left);

    free(it);
    return sent;
}

/* The second lane was not measured while the first one got many bytes. */
static measured_t *measured_long_ago(double second)
{
    measured_t *it = measured_new(1, second);

    it->lanes[1].stripe.without = 512 << 20;
    return it;
}

/* A lane that was left out is tried again after many bytes on the other,
 * however slow it was. */
static void left_out_for_a_while(double second)
{
    measured_t *it = measured_new(1, second);

    check(measured_fill(it, PIECE) == 2);
    free(it);
    it = measured_long_ago(second);
    check(measured_fill(it, PIECE) == 22);
    free(it);
}

/* So is a lane beside one that is never full, where pieces complete at once;
 * the try ends although they cannot be measured. */
static void tried_beside_an_idle_lane(double second)
{
    measured_t *it = measured_long_ago(second);

    for (int i = 0; i < 100; i++) {
        psc_lane_t *lane = psc_stripe_lane(&it->conn, 8 << 20, PIECE, 0, 0);

        psc_stripe_sent(lane, NULL, &it->req, PIECE);
    }
    check(it->lanes[1].stripe.given == 2 * PSC_PIECES_MAX * PIECE);
    free(it);
}

static void no_report(psc_comp_t *comp, psc_status_t status)
{
    check(comp && status == PSC_OK);
}

/* The first measurement of the try counts, and ends the try. */
static void tried_and_measured(void)
{
    psc_bulk_t bulk = {.comp.func = no_report};
    measured_t *it = measured_long_ago(1e-6);
    psc_stripe_t *stripe = &it->lanes[1].stripe;

    it->req.bulk = &bulk;
    check(measured_fill(it, PIECE) == 22);
    for (uint32_t i = 0; i < PSC_PIECES_MAX; i++) {
        it->worker.pass++;
        psc_stripe_comp(&stripe->pieces[i].comp, PSC_OK);
    }
    check(stripe->bytes == PIECE && stripe->ns < PIECE / 1e-6);
    check(stripe->without == 0 && stripe->tries == 0);
    free(it);
}

/* A lane that copies a piece, and refuses the next one. */
static psc_status_t copy_or_refuse(psc_req_t *req, psc_lane_t *lane,
                                   size_t *moved_p)
{
    if (*moved_p > 0)
        return PSC_ERR_NO_RESOURCE;
    psc_stripe_sent(lane, NULL, req, PIECE);
    *moved_p = PIECE;
    return PSC_OK;
}

/* Pieces of a lane that copies do not complete. What it takes between two
 * moments at which it has no room shows its rate, here far more than a KB per
 * ms and far less than a GB per ms; the other lane carries `other` bytes per
 * ns. Returns the same as measured_fill, afterwards. */
static int copied_beside(double other)
{
    measured_t *it = measured_new(0, other);
    psc_bulk_t bulk = {.len = 64 << 20};
    int sent;

    psc_req_set_conn(&it->req, &it->conn);
    it->req.bulk = &bulk;
    it->conn.params.fragment = PIECE;
    bulk.refused = 2; /* only the first lane is asked */
    for (int i = 0; i < 3; i++) {
        size_t moved = 0;

        check(psc_stripe_move(&it->req, 32 << 20, copy_or_refuse, &moved) ==
              PSC_OK);
        check(psc_stripe_move(&it->req, 32 << 20, copy_or_refuse, &moved) ==
              PSC_ERR_NO_RESOURCE);
    }
    sent = measured_fill(it, 1ull << 40);
    free(it);
    return sent;
}

/* Pieces that complete in the same pass have taken their time together, which
 * is measured if the lane gets more of them at once: it is not idle then. */
static void measured_together(void)
{
    psc_bulk_t bulk = {.comp.func = no_report};
    measured_t *it = measured_new(0, 0);
    psc_lane_t *lane = &it->lanes[0];

    it->req.bulk = &bulk;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < PSC_PIECES_MAX; i++)
            psc_stripe_sent(lane, &lane->stripe.pieces[i], &it->req, PIECE);
        it->worker.pass++;
        for (uint32_t i = 0; i < PSC_PIECES_MAX; i++)
            psc_stripe_comp(&lane->stripe.pieces[i].comp, PSC_OK);
        check(lane->stripe.bytes == round * 2 * PIECE);
    }
    free(it);
}

CASE(lane_of_a_piece)
{
    check(fill_once(1, 1, 64 << 20) == 22);
    check(fill_once(1, 0.25, 64 << 20) == 22);
    /* the end of the message waits for the faster lane, that of a long piece
     * on the slower one would come later */
    check(fill_once(1, 0.25, PIECE) == 2);
    check(fill_once(0.25, 1, PIECE) == 20);
    /* nothing is known of the second one */
    check(fill_once(1, 0, 64 << 20) == 22);
    left_out_for_a_while(0.05);
    left_out_for_a_while(1e-6);
    tried_beside_an_idle_lane(0.2);
    tried_beside_an_idle_lane(0.001);
    tried_and_measured();
    check(copied_beside(1e-6) == 2);
    check(copied_beside(1e6) == 20);
    measured_together();
}
