/* A transport of pscompy in C: Unix stream sockets between processes of one
 * node. It uses only pscompy's headers and links to none of its symbols. It
 * implements the mandatory operations and nothing else; the protocols do the
 * rest with them.
 *
 *   stream.c    the table of operations, and the life of an interface
 *   connect.c   endpoints: creating, connecting, and the token proof
 *   messages.c  sending and receiving frames, and the end of endpoints
 *
 * An interface has one listening socket with a random name; an endpoint has one
 * connected socket. All sockets are watched level-triggered by one epoll set,
 * which is also the event descriptor: bytes that stay in a socket make it
 * readable again. */
#ifndef PSCOMPY_STREAM_H
#define PSCOMPY_STREAM_H

#include <pscompy/transport/kit/list.h>
#include <pscompy/transport/kit/restart.h>
#include <pscompy/transport/kit/token_proof.h>
#include <pscompy/transport/transport.h>
#include <sys/epoll.h>
#include <sys/un.h>

#define FRAME_MAX 65536u /* of header and payload */
#define ROOM (2 * (FRAME_MAX + 8))
#define CALLERS_MAX 16u
/* length of the listening socket's name: NUL, then random bytes */
#define NAME_SIZE 24u
#define ADDRESS_LEN (offsetof(struct sockaddr_un, sun_path) + NAME_SIZE)

/* ---- formats ---- */

typedef struct address {
    uint64_t endpoint;
    char name[NAME_SIZE];
} address_t;

typedef struct hello { /* sent by the connector: the wanted endpoint, a nonce */
    uint64_t magic, endpoint;
    uint8_t nonce[PSC_PROOF_NONCE_SIZE];
} hello_t; /* followed by the acceptor's challenge and the connector's answer */

typedef struct frame { /* followed by the header and the payload */
    uint32_t len;
    uint8_t id, header_len;
    uint16_t reserved;
} frame_t;

#define MAGIC 0x326d61657274ull

/* ---- objects ---- */

typedef struct source source_t;
typedef struct stream stream_t;

struct source { /* an entry of the epoll set */
    void (*ready)(source_t *self, uint32_t events);
    stream_t *stream;
    int fd; /* -1: none */
    uint32_t events;
};

struct stream {
    psc_iface_t super;
    source_t listener;
    source_t callers[CALLERS_MAX]; /* have not named an endpoint */
    unsigned next_caller, handled;
    int epoll_fd;
    char name[NAME_SIZE];
    /* the graveyard's endpoints are freed when progress returns */
    psc_list_t eps, graveyard;
    bool in_progress;
};

typedef enum stage {
    NEW,
    CALLED, /* a caller arrived before ep_connect */
    AWAIT_CHALLENGE,
    AWAIT_ANSWER,
    UP,
    CLOSING, /* queued bytes are still being sent */
    ENDED
} stage_t;

typedef struct ep {
    psc_ep_t super;
    psc_link_t link;
    source_t source;
    stage_t stage;
    bool accepting; /* ep_connect was called as acceptor */
    uint64_t id;
    psc_proof_t proof; /* token proof; started by ep_connect */
    uint8_t caller_nonce[PSC_PROOF_NONCE_SIZE];
    uint8_t in[ROOM], out[ROOM];
    size_t in_len, out_len;
} ep_t;

static inline stream_t *stream_of(const ep_t *ep)
{
    return (stream_t *)ep->super.iface;
}

/* ---- messages.c ---- */

void source_watch(source_t *source, uint32_t events);
void source_close(source_t *source);
void ep_ready(source_t *source, uint32_t events);
void ep_flush(ep_t *ep);
void ep_put(ep_t *ep, const void *bytes, size_t len);
/* Called by progress only. */
void ep_fail(ep_t *ep, psc_status_t status, const char *reason);
psc_status_t stream_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                             uint8_t header_len, const psc_iov_t *iov,
                             size_t n_iov);
void stream_ep_close(psc_ep_t *ep);
psc_status_t stream_ep_stop(psc_ep_t *ep);
void stream_ep_fini(psc_ep_t *ep);

/* ---- connect.c ---- */

struct sockaddr_un name_address(const char *name);
void listener_ready(source_t *source, uint32_t events);
/* These take a complete message and return its length, or return 0 if it is not
 * complete. */
size_t ep_take_challenge(ep_t *ep);
size_t ep_take_answer(ep_t *ep);
psc_status_t stream_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
psc_status_t stream_ep_address(psc_ep_t *ep, uint8_t *bytes, size_t *len_p);
psc_status_t stream_ep_connect(psc_ep_t *ep,
                               const psc_connect_params_t *params);

#endif
