/* A connection to one peer, over one or more lanes. */
#ifndef PSCOMPY_CORE_TYPES_CONN_H
#define PSCOMPY_CORE_TYPES_CONN_H

#include "lane.h"

struct psc_conn {
    psc_worker_t *worker;
    uint64_t id;
    int rank;
    int state; /* psc_conn_state_t, atomic for readers without the lock */
    psc_status_t status;   /* why the connection ended */
    uint32_t n_lanes;
    psc_lane_t *lanes[PSC_LANES_MAX];
    psc_proto_params_t params;
    psc_link_t link;       /* in the worker's conns or doomed */
    psc_link_t busy_link;  /* in the worker's busy */
    psc_link_t event_link; /* in the worker's conn_events */

    psc_list_t queues;     /* match queues, one per context */
    psc_list_t active;     /* outstanding requests */
    /* requests with a control message to send, in any order */
    psc_list_t urgent;
    psc_list_t ordered;    /* sends to be issued in order */
    psc_list_t fins;       /* requests whose FINs are sent together */
    psc_list_t maps;       /* mapped segments of the peer: lend.c */

    /* Flow control, in cumulative bytes modulo 2^32 (see eager.c) */
    uint32_t credit_limit; /* how much we may have sent in total */
    uint32_t credit_sent;
    uint32_t credit_consumed;
    uint32_t credit_got;   /* received from the peer; at most credit_told */
    uint32_t credit_told;  /* the limit last reported to the peer */
    uint32_t rts_out;      /* rendezvous that the peer has not matched yet */
    uint32_t rts_in;       /* announcements that we have not matched yet */
    bool credit_due, close_due, close_ack_due;
    bool close_sent, close_received;
    bool event;           /* in conn_events: its owner must read its state */
    bool tagged; /* the fabric matches its messages; see proto/tag.h */
    /* Called when the fabric has matched a receive; psc_tag_recv_t has the
     * result. */
    void (*tag_done)(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                     size_t len);
    /* Length of the last pause: doubled each time that a message put with its
     * mark met no receive, 0 after a success. */
    uint32_t along_missed;
    /* How many of the next long messages are announced by RTS, not put. */
    uint32_t along_pause;
    /* active messages from this peer, queued or polled and not yet released */
    atomic_uint messages;

    /* own counters once it is up; before, worker's nobodys */
    psc_counters_t *counters;
};

static inline void psc_count(psc_conn_t *conn, psc_counter_t counter,
                             uint64_t n)
{
    conn->counters->value[counter] += n;
    conn->worker->counters.value[counter] += n;
}

/* Fill in the source of a result. */
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

/* The interface of lane 0, over which credit arrives. */
static inline psc_ifaces_t psc_conn_ifaces(const psc_conn_t *conn)
{
    const psc_iface_slot_t *slot = conn->lanes[0]->slot;

    return (psc_ifaces_t){1u << (slot - conn->worker->ifaces)};
}

#endif
