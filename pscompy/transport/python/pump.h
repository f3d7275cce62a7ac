/* What the pump calls: the thread, written in Python, between a bridge and its
 * transport. Every function may be called from any thread, takes the bridge's
 * own lock and never the worker's, and never blocks. An endpoint is named by
 * its number; the number of one that is gone is ignored.
 * The text between the CDEF marks is read by build.py. */
#ifndef PSCOMPY_BRIDGE_PUMP_H
#define PSCOMPY_BRIDGE_PUMP_H

#include <stddef.h>
#include <stdint.h>

/* CDEF BEGIN */
typedef struct bridge bridge_t;

/* What the transport says about itself; times in nanoseconds. */
typedef struct bridge_attr {
    double latency_ns;
    double bandwidth;    /* bytes per second */
    size_t max_frame;    /* longest frame, bytes */
    uint32_t queue;      /* frames that may wait per endpoint and direction */
    int node_only;       /* reaches only its own node */
} bridge_attr_t;

typedef enum bridge_kind {
    BRIDGE_CONNECT, /* begin: role, token, and peer and data, its address */
    BRIDGE_FRAME,   /* send data, then say frame_done */
    BRIDGE_RESUME,  /* deliver may be called for this endpoint again */
    BRIDGE_CLOSE,   /* send what was taken, end the link, say ep_closed */
    BRIDGE_END      /* nothing follows */
} bridge_kind_t;

typedef struct bridge_command {
    bridge_kind_t kind;
    uint64_t ep;
    int role;             /* psc_role_t */
    const uint8_t *token; /* PSC_TOKEN_SIZE bytes */
    uint64_t peer;        /* the number of the peer's endpoint */
    const uint8_t *data;  /* valid until the next take */
    size_t len;
} bridge_command_t;

/* A bridge with one reference, which bridge_release gives back; the worker
 * that opens it holds another. NULL: out of memory or descriptors, or an
 * address that is too long. */
bridge_t *bridge_create(const char *name, const bridge_attr_t *attr,
                        const uint8_t *address, size_t len);
void bridge_release(bridge_t *bridge);
/* The address of its psc_transport_ops_t, which lives as long as it does. */
uintptr_t bridge_ops(bridge_t *bridge);
/* Readable while there may be something to take. */
int bridge_fd(bridge_t *bridge);
/* The next command, oldest first. 0: none, and bridge_fd is quiet. */
int bridge_take(bridge_t *bridge, bridge_command_t *command_p);
/* Have the pump end, as closing the interface does. */
void bridge_end(bridge_t *bridge);

/* A frame that was taken has left. */
void bridge_frame_done(bridge_t *bridge, uint64_t ep);
/* A frame has arrived; it is copied. PSC_ERR_NO_RESOURCE: not taken, RESUME
 * follows. PSC_ERR_PROTOCOL: it is not one that a bridge has sent. */
int bridge_deliver(bridge_t *bridge, uint64_t ep, const uint8_t *frame,
                   size_t len);
void bridge_ep_up(bridge_t *bridge, uint64_t ep);
void bridge_ep_failed(bridge_t *bridge, uint64_t ep, int status,
                      const char *reason);
void bridge_ep_closed(bridge_t *bridge, uint64_t ep);

/* One end's half of the token proof (transport/kit/token_proof.h). */
typedef struct bridge_proof bridge_proof_t;

/* NULL: out of memory or of random bytes. */
bridge_proof_t *bridge_proof_create(int role, const uint8_t *token,
                                    uint64_t own, uint64_t peer);
void bridge_proof_destroy(bridge_proof_t *proof);
/* PSC_PROOF_NONCE_SIZE bytes. */
const uint8_t *bridge_proof_hello(const bridge_proof_t *proof);
/* A message has arrived. Returns the length of the reply that is to be sent,
 * 0 if none is, or -1 if the proof is refused. */
int bridge_proof_receive(bridge_proof_t *proof, int kind, const uint8_t *body,
                         size_t len);
const uint8_t *bridge_proof_reply(const bridge_proof_t *proof);
/* The reason of a refusal. */
const char *bridge_proof_why(const bridge_proof_t *proof);
/* CDEF END */

#endif
