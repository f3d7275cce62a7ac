/* A lane: one endpoint of one transport. */
#ifndef PSCOMPY_CORE_TYPES_LANE_H
#define PSCOMPY_CORE_TYPES_LANE_H

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

#endif
