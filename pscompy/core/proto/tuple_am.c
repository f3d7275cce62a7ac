#include "tuple_am.h"

#include <stdlib.h>

#include "../conn_queue.h"
#include "credit.h"
#include "tag_post.h"

/* psc_exposed_t.entry of a receive that has no entry any more */
#define NO_ENTRY UINT32_MAX

/* A message that the peer may send as a claim; its index is the entry. */
typedef struct permit {
    uint64_t generation; /* 0: not in use */
    uint64_t match, ignore, len;
    psc_exposed_t *recv; /* NULL after the receive was withdrawn */
    bool conceal_due;
} permit_t;

/* A receive of the peer; its index is the entry. */
typedef struct sight {
    psc_sighted_t recv; /* its generation is 0 if the entry is not in use */
    uint64_t len;
    bool concealed_due; /* the peer has withdrawn the receive */
} sight_t;

struct psc_tuple_am {
    permit_t permits[PSC_EXPOSED_MAX];
    uint64_t permitted;  /* bytes that all permits allow */
    uint64_t generation; /* of the last permit */
    uint64_t seen;       /* as the peer was last to be told */
    sight_t sights[PSC_EXPOSED_MAX];
    uint64_t peer_generation, peer_seen;
};

/* ---- a connection ---- */

static psc_conn_t *am_conn(psc_ep_t *ep)
{
    return ((psc_lane_t *)ep->user)->conn;
}

bool psc_tuple_am_begin(psc_conn_t *conn)
{
    const psc_iface_attr_t *attr = &psc_conn_main_lane(conn)->slot->attr;
    const uint64_t moves = PSC_CAP_PUT | PSC_CAP_GET;

    if (!conn->worker->config.tuple_am || attr->caps & moves ||
        !(attr->caps & PSC_CAP_AM_ZCOPY) || attr->max_zcopy < PSC_CLAIM_MAX)
        return false;
    conn->tuple_am = calloc(1, sizeof *conn->tuple_am);
    return conn->tuple_am != NULL;
}

void psc_tuple_am_end(psc_conn_t *conn)
{
    if (conn->tuple_am)
        conn->lost.replay_due = false;
    free(conn->tuple_am);
    conn->tuple_am = NULL;
}

/* ---- receiving ---- */

/* Returns a permit for `len` bytes; NULL if there is none, or if the messages
 * that wait for a receive leave no room for them. */
static permit_t *permit_unused(psc_conn_t *conn, uint64_t len)
{
    psc_tuple_am_t *am = conn->tuple_am;

    if (am->permitted + len > PSC_CLAIMS_MAX ||
        !psc_room_left(&conn->worker->room))
        return NULL;
    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++) {
        if (am->permits[i].generation == 0)
            return &am->permits[i];
    }
    return NULL;
}

/* Returns the permit of this entry, or NULL if the generation is another one.
 */
static permit_t *permit_find(psc_tuple_am_t *am, uint32_t entry,
                             uint64_t generation)
{
    if (!am || entry >= PSC_EXPOSED_MAX || generation == 0 ||
        am->permits[entry].generation != generation)
        return NULL;
    return &am->permits[entry];
}

static void permit_end(psc_tuple_am_t *am, permit_t *permit)
{
    am->permitted -= permit->len;
    *permit = (permit_t){0};
}

static psc_status_t am_expose(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen)
{
    psc_conn_t *conn = am_conn(ep);
    psc_tuple_am_t *am = conn->tuple_am;
    uint64_t len =
        recv->buffer.len < PSC_CLAIM_MAX ? recv->buffer.len : PSC_CLAIM_MAX;
    permit_t *permit = permit_unused(conn, len);
    psc_wire_expose_t wire = {.generation = am->generation + 1,
                              .match = recv->match,
                              .ignore = recv->ignore,
                              .len = len,
                              .seen = seen};
    psc_status_t status;

    if (!permit)
        return PSC_ERR_NO_RESOURCE;
    recv->entry = wire.entry = (uint32_t)(permit - am->permits);
    status =
        psc_credit_send(conn, PSC_WIRE_EXPOSE, &wire, sizeof wire, NULL, 0);
    if (status != PSC_OK)
        return status;
    am->generation++;
    am->seen = seen;
    am->permitted += len;
    *permit = (permit_t){.generation = wire.generation,
                         .match = recv->match,
                         .ignore = recv->ignore,
                         .len = len,
                         .recv = recv};
    return PSC_OK;
}

static void am_due(psc_conn_t *conn)
{
    conn->lost.replay_due = true;
    psc_conn_mark_busy(conn);
}

static psc_status_t am_conceal(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen)
{
    psc_conn_t *conn = am_conn(ep);
    psc_tuple_am_t *am = conn->tuple_am;
    permit_t *permit;

    if (recv->entry == NO_ENTRY)
        return PSC_OK; /* the peer has claimed the receive already */
    permit = &am->permits[recv->entry];
    permit->recv = NULL;
    recv->entry = NO_ENTRY;
    am->seen = seen;
    if (conn->state == PSC_CONN_UP && !conn->closing.received) {
        permit->conceal_due = true;
        am_due(conn);
    }
    return PSC_OK;
}

psc_status_t psc_tuple_am_claimed(psc_conn_t *conn,
                                  const psc_wire_claim_t *wire, uint64_t len)
{
    uint64_t bits = psc_tag_bits(wire->eager.context, (int32_t)wire->eager.tag);
    permit_t *permit =
        permit_find(conn->tuple_am, wire->entry, wire->generation);

    if (!permit || len > permit->len ||
        (bits ^ permit->match) & ~permit->ignore)
        return PSC_ERR_PROTOCOL;
    if (permit->recv) {
        permit->recv->entry = NO_ENTRY;
        psc_count(conn, PSC_COUNTER_tuple_taken, 1);
    }
    permit_end(conn->tuple_am, permit);
    psc_flow_take(&conn->flow, psc_credit_cost(len));
    return PSC_OK;
}

psc_status_t psc_tuple_am_concealed_arrived(psc_lane_t *lane,
                                            const psc_am_t *am)
{
    const psc_wire_conceal_t *wire = am->header;
    psc_tuple_am_t *tuple = lane->conn->tuple_am;
    permit_t *permit = permit_find(tuple, wire->entry, wire->generation);

    if (am->len > 0 || !permit || permit->recv || permit->conceal_due)
        return PSC_ERR_PROTOCOL;
    permit_end(tuple, permit);
    return PSC_OK;
}

/* ---- sending ---- */

/* A side that claims no receives ignores EXPOSE and CONCEAL; its peer then has
 * no entries left soon. */
psc_status_t psc_tuple_am_expose_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_expose_t *wire = am->header;
    psc_tuple_am_t *tuple = lane->conn->tuple_am;

    if (!tuple)
        return PSC_OK;
    if (am->len > 0 || wire->entry >= PSC_EXPOSED_MAX ||
        wire->len > PSC_CLAIM_MAX ||
        tuple->sights[wire->entry].recv.generation != 0 ||
        wire->generation <= tuple->peer_generation)
        return PSC_ERR_PROTOCOL;
    tuple->peer_generation = wire->generation;
    tuple->peer_seen = wire->seen;
    tuple->sights[wire->entry] =
        (sight_t){.recv = {.entry = wire->entry,
                           .generation = wire->generation,
                           .match = wire->match,
                           .ignore = wire->ignore},
                  .len = wire->len};
    return PSC_OK;
}

psc_status_t psc_tuple_am_conceal_arrived(psc_lane_t *lane, const psc_am_t *am)
{
    const psc_wire_conceal_t *wire = am->header;
    psc_tuple_am_t *tuple = lane->conn->tuple_am;

    if (!tuple)
        return PSC_OK;
    if (am->len > 0 || wire->entry >= PSC_EXPOSED_MAX || wire->generation == 0)
        return PSC_ERR_PROTOCOL;
    tuple->peer_seen = wire->seen;
    if (tuple->sights[wire->entry].recv.generation != wire->generation)
        return PSC_OK; /* claimed before */
    tuple->sights[wire->entry].concealed_due = true;
    am_due(lane->conn);
    return PSC_OK;
}

static uint32_t am_exposed(psc_ep_t *ep, psc_sighted_t *sighted,
                           uint64_t *seen_p)
{
    const psc_tuple_am_t *am = am_conn(ep)->tuple_am;
    uint32_t n = 0;

    *seen_p = am->peer_seen;
    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++) {
        if (am->sights[i].recv.generation != 0 && !am->sights[i].concealed_due)
            sighted[n++] = am->sights[i].recv;
    }
    return n;
}

/* Returns PSC_ERR_UNSUPPORTED if the message is longer than its receive allows.
 */
static psc_status_t am_claim(psc_ep_t *ep, const psc_sighted_t *sighted,
                             uint64_t bits, const void *buffer, size_t len,
                             psc_comp_t *comp)
{
    psc_conn_t *conn = am_conn(ep);
    sight_t *sight = &conn->tuple_am->sights[sighted->entry];
    psc_flow_t before = conn->flow;
    psc_wire_claim_t wire = {
        .eager = {.tag = (uint32_t)(bits & PSC_TAG_MASK),
                  .context = (uint16_t)(bits >> PSC_TAG_CONTEXT_SHIFT)},
        .entry = sighted->entry,
        .generation = sighted->generation};
    psc_iov_t piece = {(void *)buffer, len};
    psc_status_t status;

    if (len > sight->len)
        return PSC_ERR_UNSUPPORTED;
    wire.eager.credit = psc_flow_stamp(&conn->flow, conn->worker->room.window);
    status = psc_conn_main_lane(conn)->slot->ops->am_zcopy(
        ep, PSC_WIRE_CLAIM, &wire, sizeof wire, &piece, 1, comp);
    if (status < 0)
        psc_flow_unstamp(&conn->flow, &before);
    else
        *sight = (sight_t){.len = 0};
    return status;
}

const psc_transport_ops_t psc_tuple_am_ops = {.expose = am_expose,
                                              .conceal = am_conceal,
                                              .exposed = am_exposed,
                                              .claim = am_claim};

/* ---- messages that are due ---- */

static bool am_tell(psc_conn_t *conn, psc_wire_id_t id, uint32_t entry,
                    uint64_t generation)
{
    psc_wire_conceal_t wire = {
        .entry = entry, .generation = generation, .seen = conn->tuple_am->seen};

    return psc_credit_send(conn, id, &wire, sizeof wire, NULL, 0) == PSC_OK;
}

bool psc_tuple_am_flush(psc_conn_t *conn)
{
    psc_tuple_am_t *am = conn->tuple_am;
    bool moved = false;

    for (uint32_t i = 0; i < PSC_EXPOSED_MAX; i++) {
        permit_t *permit = &am->permits[i];
        sight_t *sight = &am->sights[i];

        if (permit->conceal_due) {
            if (!am_tell(conn, PSC_WIRE_CONCEAL, i, permit->generation))
                return moved;
            permit->conceal_due = false;
            moved = true;
        }
        if (sight->concealed_due) {
            if (!am_tell(conn, PSC_WIRE_CONCEALED, i, sight->recv.generation))
                return moved;
            *sight = (sight_t){.len = 0};
            moved = true;
        }
    }
    conn->lost.replay_due = false;
    return moved;
}
