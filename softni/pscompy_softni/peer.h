/* Peers: frames to them and from them, and how they are connected and lost. */
#pragma once

#include "operation.h"
#include "pscompy/transport/kit/reorder.h"

/* ---- peer.c, life.c, hello.c, handshake.c, send.c, receive.c ---- */

typedef enum psni_stage {
    /* no handshake has begun since the peer was added or lost */
    PSNI_PEER_IDLE,
    PSNI_PEER_OPENING,
    PSNI_PEER_UP
} psni_stage_t;

typedef struct psni_frame {
    /* operation whose bytes the frame carries; NULL if the frame carries only
     * answers */
    psni_op_t *op;
    psni_op_t *answers[PSNI_ANSWERS];
    unsigned n_answers;
    /* offset of the frame's bytes in the message of the operation */
    uint64_t offset;
    uint32_t length;
    bool first, last, resent;
    /* the frame was acknowledged although earlier frames were not */
    bool acked_early;
    /* time at which the frame was sent; 0 if the socket had no room */
    int64_t sent_at;
} psni_frame_t;

/* A received frame that overtook earlier ones; it is kept until these have
 * arrived. */
typedef struct psni_stored {
    size_t length;
    unsigned answers;
    uint8_t bytes[];
} psni_stored_t;

struct psni_peer {
    psni_ni_t *ni;
    psni_peer_t *next; /* next peer in the same bucket of the table */
    /* link in the NI's list `busy` of peers that have a deadline */
    psc_link_t busy;
    ptl_process_t id;
    struct sockaddr_in address;
    psni_stage_t state;
    bool is_self; /* the peer is this NI: no acknowledgements are needed */
    bool admitted; /* the peer's cookie is known */
    uint8_t cookie[SOFTNI_COOKIE_BYTES];
    /* `token`: token that frames of the peer must carry; `its_token`: token
     * that frames to the peer carry; 0 if unknown */
    uint64_t token, its_token;
    /* tokens for a new process that has opened the peer's address; 0: none.
     * `next_token` is offered to that process, `its_next` is offered by it. */
    uint64_t next_token, its_next;
    ptl_uid_t uid;

    /* members for sending */
    psc_list_t ops, queue;
    psc_list_t answers; /* ACKs of puts that wait for a frame with a message */
    /* link in the NI's list `answering` while `answers` is not empty */
    psc_link_t answering;
    unsigned n_answers;
    psni_frame_t frames[PSNI_WINDOW];
    uint32_t oldest, next_seq;
    /* cost: bytes in flight to the peer; window: maximum number of bytes in
     * flight */
    uint64_t cost, window;
    /* bytes that the receive buffer of the peer's socket can hold */
    uint64_t most;
    uint32_t frame_size; /* payload bytes of one frame */
    int64_t trip, spread; /* mean round-trip time and its deviation, ns */
    int64_t deadline;
    /* `unanswered`: resends since the peer's last frame; `refusals`: number of
     * these that followed ECONNREFUSED */
    unsigned unanswered, refusals;
    /* silent_at: time of the first resend since the peer's last frame;
     * patience: ns for which resends may go on */
    int64_t silent_at, patience;
    bool refused; /* ECONNREFUSED was reported since the last resend */

    /* members for receiving */
    psc_reorder_t order; /* frames that arrived early, as psni_stored_t */
    /* array in which `order` holds the frames that arrived early */
    void *held[PSNI_WINDOW];
    uint32_t acked; /* value of order.expected in the last acknowledgement */
    /* number of the peer's frames received since the last acknowledgement */
    unsigned owed;
    uint64_t owed_cost;
    int64_t owed_by;
    psni_incoming_t incoming;
};

psni_peer_t *psni_peer_find(psni_ni_t *ni, ptl_process_t id);
psni_peer_t *psni_peer_make(psni_ni_t *ni, ptl_process_t id);
/* Finds a peer by its id, or adds it to the NI's table of peers. Returns NULL
 * if the id is invalid or memory is short. */
psni_peer_t *psni_peer_get(psni_ni_t *ni, ptl_process_t id);
/* Returns true if this side waits for the peer: for an answer to an operation,
 * or for the rest of a message. */
bool psni_peer_awaited(const psni_peer_t *peer);
/* Fails every operation to the peer. A later operation begins a new
 * handshake. */
void psni_peer_lose(psni_peer_t *peer);
void psni_peer_up(psni_peer_t *peer, uint64_t token, uint64_t its_token);
void psni_peers_close(psni_ni_t *ni);
void psni_peer_refused(psni_peer_t *peer);
/* Counts a frame or HELLO that got no answer. Returns false if no further
 * attempt is allowed; then the caller treats the peer as lost. */
bool psni_peer_may_retry(psni_peer_t *peer);
/* Returns the nanoseconds to wait for an acknowledgement before a resend. */
int64_t psni_peer_resend_delay(const psni_peer_t *peer);
/* Sets the timer for resends, and for asking a peer that owes an answer whether
 * it is alive. */
void psni_peer_expect(psni_peer_t *peer, int64_t now);
void psni_peer_timer(psni_peer_t *peer, int64_t when);
/* Returns true if no frame to any peer is waiting or in flight. */
bool psni_peers_quiet(psni_ni_t *ni);

/* Returns a hash of the bytes, with a key that only this NI has. */
uint64_t psni_secret(const psni_ni_t *ni, const void *bytes, size_t length);
uint64_t psni_handshake_token(psni_ni_t *ni);
void psni_handshake_sign(const uint8_t *cookie, ptl_process_t from,
                         ptl_process_t to, const psni_hello_t *hello,
                         uint8_t *proof);
void psni_handshake_send(psni_peer_t *peer, uint64_t token, uint64_t echo);
void psni_handshake_begin(psni_peer_t *peer);
/* Called when the timer of the peer expires: sends HELLO again, or gives up the
 * peer. */
void psni_handshake_again(psni_peer_t *peer, int64_t now);
/* Returns true if a frame with this token proves that the peer received the
 * token that this NI offered in a HELLO frame. */
bool psni_handshake_proves(psni_peer_t *peer, uint64_t token);
void psni_handshake_take(psni_ni_t *ni, const struct sockaddr_in *from,
                         const uint8_t *body, size_t length);

/* Queues the operation, and sends as many of its frames as the window
 * allows. */
void psni_send_queue(psni_op_t *op);
void psni_send_pump(psni_peer_t *peer);
/* Queues an ACK. The ACK may wait a moment for a message to the same peer, with
 * which it can share a frame; an ACK that reports a failure is sent at once. */
void psni_send_answer(psni_op_t *op);
/* Sends the ACKs that wait, for all peers. */
void psni_send_answers(psni_ni_t *ni);
void psni_send_ack(psni_peer_t *peer, uint8_t flags);
/* Called when the timer of the peer expires: resends frames that were not
 * acknowledged. */
void psni_send_again(psni_peer_t *peer, int64_t now);
/* Handles the acknowledgements of this side's frames in the head of a frame
 * from the peer. */
void psni_send_acknowledged(psni_peer_t *peer, const psni_head_t *head);
void psni_send_reset(psni_peer_t *peer);

void psni_stored_free(psni_peer_t *peer, psni_stored_t *stored);
void psni_arrive_reset(psni_peer_t *peer);

/* ---- frame.c ---- */

typedef struct psni_packet {
    struct iovec iov[1 + PSNI_PIECES];
    int n_iov;
    uint8_t
        head[sizeof(psni_head_t) + (PSNI_ANSWERS + 1) * sizeof(psni_message_t)];
} psni_packet_t;

/* Returns the number of bytes that a frame of `length` bytes takes of the
 * receiver's socket buffer. */
uint64_t psni_frame_cost(uint64_t length);
psni_frame_t *psni_frame_at(psni_peer_t *peer, uint32_t seq);
psni_head_t psni_head_for(psni_peer_t *peer, psni_frame_kind_t kind);
void psni_frame_pack(psni_peer_t *peer, uint32_t seq, psni_packet_t *packet);
/* Makes the next frame to the peer. Returns false if there is nothing to send,
 * or if the window has no room. If `flush` is set, waiting ACKs make a frame
 * even without a message. */
bool psni_frame_next(psni_peer_t *peer, int64_t now, bool flush);
