/* Connections and their lanes. Private to the core. */
#ifndef PSCOMPY_CORE_CONN_H
#define PSCOMPY_CORE_CONN_H

#include "worker.h"

#define PSC_INCOMING_IOV 8

/* The message whose payload is arriving on a lane (am_begin ... am_end). */
typedef struct psc_incoming {
    uint8_t id;
    uint8_t header_len;
    psc_req_t *req;     /* FRAG, or eager with its receive: lands there */
    psc_unexp_t *unexp; /* eager without a receive: lands here */
    psc_message_t *message; /* an active message: it is that */
    void *bounce;       /* anything else: lands here, handled at the end */
    uint64_t len;
    psc_status_t status; /* it is not what it should be */
    psc_iov_t iov[PSC_INCOMING_IOV];
    _Alignas(8) uint8_t header[PSC_AM_HEADER_MAX];
} psc_incoming_t;

struct psc_lane {
    psc_worker_t *worker;
    psc_iface_slot_t *slot;
    psc_ep_t *ep;
    psc_conn_t *conn; /* NULL until installed */
    uint64_t id;
    uint8_t index;    /* in its connection */
    psc_lane_state_t state;
    psc_status_t status; /* why it is FAILED */
    psc_role_t role;
    bool event;       /* its owner has news to read */
    bool closing;
    bool held; /* one of its buffers keeps a message; never more, since what
                  waits for a receive must not starve what does not */
    double busy_until; /* striping: when its share is through, in ns */
    psc_link_t link;       /* worker's retiring */
    psc_link_t event_link; /* worker's events */
    psc_list_t early;      /* messages that came before it was installed */
    size_t early_bytes;
    psc_list_t announced;  /* RTSs whose mark has not come; see proto/tag.h */
    struct psc_unexp *promised, **promised_end; /* marks whose RTS has not */
    psc_incoming_t incoming;
    char reason[PSC_REASON_MAX];
};

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
    bool tagged;          /* the fabric matches its messages; see proto/tag.h */
    uint32_t along_missed; /* messages were sent with their marks in vain, so */
    uint32_t along_pause;  /* many are to be announced first */
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

/* Put a request where the next progress moves it on. */
void psc_conn_queue(psc_conn_t *conn, psc_req_t *req, bool urgent);
void psc_conn_mark_busy(psc_conn_t *conn);
/* Move what is queued as far as lanes take it; true if anything moved. */
bool psc_conn_flush(psc_conn_t *conn);
/* Free connections that were destroyed and that nothing needs any more. */
void psc_conn_reap(psc_worker_t *worker);
/* Free all, whatever needs them: the worker ends. */
void psc_conn_destroy_all(psc_worker_t *worker);
/* With the lock held. */
void psc_conn_retire_lanes(psc_conn_t *conn);
void psc_conn_fail_locked(psc_conn_t *conn, psc_status_t status);
void psc_conn_close_received(psc_conn_t *conn, bool is_ack);
/* The status that a new operation gets, PSC_OK while it may start or queue. */
psc_status_t psc_conn_usable(const psc_conn_t *conn);

/* ---- lanes ---- */
extern const psc_upcalls_t psc_lane_upcalls;
void psc_lane_retire(psc_lane_t *lane);
/* Work on lanes that are going. force: their time is up. */
void psc_lane_progress_retiring(psc_worker_t *worker, bool force);
void psc_lane_replay(psc_lane_t *lane);
/* The lane has FAILED: its connection fails with its status, if there is one. */
void psc_lane_fail_conn(psc_lane_t *lane);
/* What the peer sent over it is not what it may send: the connection ends. */
void psc_lane_break(psc_lane_t *lane, psc_status_t status);
/* Does the fabric match what comes over it? reason: PSC_REASON_MAX bytes. */
bool psc_lane_tagged(const psc_lane_t *lane, char *reason);
/* One control message or small piece on a lane. */
psc_status_t psc_lane_send(psc_lane_t *lane, psc_wire_id_t id,
                           const void *header, uint8_t header_len,
                           const void *payload, size_t len);

#endif
