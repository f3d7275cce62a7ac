/* The functions that the pump calls. The pump is the thread, written in Python,
 * between a bridge and its transport. Every function may be called from any
 * thread, takes the bridge's own lock and never the worker's, and never blocks.
 * An endpoint is named by its number; the number of an endpoint that was freed
 * is ignored. build.py reads the text between the CDEF marks. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* CDEF BEGIN */
typedef struct bridge bridge_t;

/* Properties of the transport; times in nanoseconds. */
typedef struct bridge_attr {
    double latency_ns;
    double bandwidth; /* bytes per second */
    size_t max_frame; /* length of the longest frame, in bytes */
    /* maximum number of frames that are queued per endpoint and direction */
    uint32_t queue;
    int node_only; /* not 0: the transport reaches only its own node */
} bridge_attr_t;

typedef enum bridge_kind {
    /* connect the endpoint: role, token, the number of the peer's endpoint, and
     * in `data` the peer's address */
    BRIDGE_CONNECT,
    BRIDGE_FRAME, /* send `data`, then call bridge_frame_done() */
    BRIDGE_RESUME, /* bridge_deliver() may be called for the endpoint again */
    /* send the queued frames, end the link, call bridge_ep_closed() */
    BRIDGE_CLOSE,
    BRIDGE_END /* the last command: the pump's thread must end */
} bridge_kind_t;

typedef struct bridge_command {
    bridge_kind_t kind;
    uint64_t ep;
    int role; /* psc_role_t */
    const uint8_t *token; /* PSC_TOKEN_SIZE bytes */
    uint64_t peer; /* number of the peer's endpoint */
    const uint8_t *data; /* valid until the next bridge_take() */
    size_t len;
} bridge_command_t;

/* Returns a bridge with one reference, which bridge_release() drops; the worker
 * that opens the bridge holds another. Returns NULL if memory or descriptors
 * are short, or if the address is too long. */
bridge_t *bridge_create(const char *name, const bridge_attr_t *attr,
                        const uint8_t *address, size_t len);
void bridge_release(bridge_t *bridge);
/* Returns the address of the bridge's psc_transport_ops_t, valid as long as the
 * bridge. */
uintptr_t bridge_ops(bridge_t *bridge);
/* Returns a descriptor that is readable while commands may be queued. */
int bridge_fd(bridge_t *bridge);
/* Takes the oldest command. Returns 0 if there is none; bridge_fd() is then not
 * readable. */
int bridge_take(bridge_t *bridge, bridge_command_t *command_p);
/* Makes the pump end, as closing the interface does. */
void bridge_end(bridge_t *bridge);

/* Reports that a frame has been sent. */
void bridge_frame_done(bridge_t *bridge, uint64_t ep);
/* Passes on a copy of a frame that has arrived. Returns PSC_ERR_NO_RESOURCE if
 * the queue has no room for the frame; the command BRIDGE_RESUME follows when
 * there is room. Returns PSC_ERR_PROTOCOL if the bytes are not a frame of a
 * bridge, PSC_ERR_NO_MEMORY if memory is short. */
int bridge_deliver(bridge_t *bridge, uint64_t ep, const uint8_t *frame,
                   size_t len);
void bridge_ep_up(bridge_t *bridge, uint64_t ep);
void bridge_ep_failed(bridge_t *bridge, uint64_t ep, int status,
                      const char *reason);
void bridge_ep_closed(bridge_t *bridge, uint64_t ep);

/* One side's half of the token proof (transport/kit/token_proof.h). */
typedef struct bridge_proof bridge_proof_t;

/* Starts a token proof. Returns NULL if memory or random bytes are short. */
bridge_proof_t *bridge_proof_create(int role, const uint8_t *token,
                                    uint64_t own, uint64_t peer);
void bridge_proof_destroy(bridge_proof_t *proof);
/* Returns the nonce of the connector's hello, PSC_PROOF_NONCE_SIZE bytes. */
const uint8_t *bridge_proof_hello(const bridge_proof_t *proof);
/* Processes a message of the token proof. Returns the length of the reply to
 * send, 0 if there is none, or -1 if the proof is refused. */
int bridge_proof_receive(bridge_proof_t *proof, int kind, const uint8_t *body,
                         size_t len);
const uint8_t *bridge_proof_reply(const bridge_proof_t *proof);
/* Returns the reason why the token proof was refused. */
const char *bridge_proof_why(const bridge_proof_t *proof);
/* CDEF END */
