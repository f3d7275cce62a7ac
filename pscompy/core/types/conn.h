/* A connection to one peer, over one or more lanes. */
#ifndef PSCOMPY_CORE_TYPES_CONN_H
#define PSCOMPY_CORE_TYPES_CONN_H

#include "lane.h"

struct psc_conn {
    psc_worker_t *worker;
    uint64_t id;
    int rank;
    int state; /* psc_conn_state_t, atomic for readers without the lock */
    psc_status_t status;   /* why it ended */
    uint32_t n_lanes;
    psc_lane_t *lanes[PSC_LANES_MAX];
    psc_proto_params_t params;
    psc_link_t link;       /* worker's conns, or its doomed */
    psc_link_t busy_link;  /* worker's busy */
    psc_link_t event_link; /* worker's events */

    psc_list_t queues;     /* match queues, one per context */
    psc_list_t active;     /* outstanding requests */
    psc_list_t urgent;     /* requests that wait to act, any order */
    psc_list_t ordered;    /* sends that wait for their turn */
    psc_list_t fins;       /* requests whose FINs leave together */
    psc_list_t maps;       /* the peer's segments that are mapped: lend.c */

    /* flow control, in cumulative bytes modulo 2^32 (see eager.c) */
    uint32_t credit_limit; /* what the peer lets us have sent */
    uint32_t credit_sent;
    uint32_t credit_consumed;
    uint32_t credit_got;   /* what the peer has sent: within what we told */
    uint32_t credit_told;  /* the limit that we told last */
    uint32_t rts_out;      /* rendezvous that the peer has not matched */
    uint32_t rts_in;       /* announcements that we have not matched */
    bool credit_due, close_due, close_ack_due;
    bool close_sent, close_received;
    bool event;           /* its owner has news to read */
    bool tagged; /* the fabric matches its messages; see proto/tag.h */
    /* Receives that the fabric has matched; psc_tag_recv_t says with what. */
    void (*tag_done)(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                     size_t len);
    uint32_t along_missed; /* messages were sent with their marks in vain, so */
    uint32_t along_pause; /* many are to be announced first */
    atomic_uint messages; /* queued or polled, whose source it is */

    psc_counters_t *counters; /* its own once it is up, else nobody's */
};

static inline void psc_count(psc_conn_t *conn, psc_counter_t counter,
                             uint64_t n)
{
    conn->counters->value[counter] += n;
    conn->worker->counters.value[counter] += n;
}

/* Say in a result whose message it is. */
static inline void psc_conn_sign(const psc_conn_t *conn, psc_result_t *result)
{
    result->source = conn->id;
    result->rank = conn->rank;
}

/* Lane 0 carries everything that is matched or must stay in order. */
static inline psc_lane_t *psc_conn_main_lane(psc_conn_t *conn)
{
    return conn->lanes[0];
}

static inline bool psc_conn_ended(const psc_conn_t *conn)
{
    return conn->state == PSC_CONN_CLOSED || conn->state == PSC_CONN_FAILED;
}

/* The interface over which credit arrives. */
static inline psc_ifaces_t psc_conn_ifaces(const psc_conn_t *conn)
{
    const psc_iface_slot_t *slot = conn->lanes[0]->slot;

    return (psc_ifaces_t){1u << (slot - conn->worker->ifaces)};
}

#endif
