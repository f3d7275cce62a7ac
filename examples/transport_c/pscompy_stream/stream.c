/* A transport of pscompy in C: Unix stream sockets between processes of one
 * node. It knows pscompy by two headers, needs no symbol of it, and can do
 * what is mandatory and nothing else: the protocols make the rest of it.
 *
 * An interface has one listening socket at a random name; an endpoint has one
 * connected socket. Everything is watched by one epoll set, level triggered,
 * which is also the event descriptor: what is left in a socket wakes again. */
#include <errno.h>
#include <pscompy/core/parts/list.h>
#include <pscompy/core/parts/siphash.h>
#include <pscompy/core/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FRAME_MAX 65536u /* header and payload */
#define ROOM (2 * (FRAME_MAX + 8))
#define EVENTS_MAX 16
#define CALLERS_MAX 16u
#define NAME_SIZE 24u /* of the listening socket: NUL, then random bytes */
#define MAC PSC_SIPHASH_SIZE

/* ---- what travels ---- */

typedef struct address {
    uint64_t endpoint;
    char name[NAME_SIZE];
} address_t;

typedef struct hello { /* connector: whom I want, my nonce */
    uint64_t magic, endpoint;
    uint8_t nonce[16];
} hello_t;

typedef struct answer { /* acceptor: my nonce and proof; then the other's */
    uint8_t nonce[16], proof[MAC];
} answer_t;

typedef struct frame { /* then the header and the payload */
    uint32_t len;
    uint8_t id, header_len;
    uint16_t reserved;
} frame_t;

#define MAGIC 0x316d61657274ull

/* ---- objects ---- */

typedef struct source source_t;
typedef struct stream stream_t;

struct source { /* what the epoll set points to */
    void (*ready)(source_t *self, uint32_t events);
    stream_t *stream;
    int fd; /* -1: none */
    uint32_t events;
};

struct stream {
    psc_iface_t super;
    source_t listener;
    source_t callers[CALLERS_MAX]; /* have not said whom they want */
    unsigned next_caller, handled;
    int epoll_fd;
    char name[NAME_SIZE];
    psc_list_t eps, graveyard; /* those are freed at the end of progress */
    bool in_progress;
};

typedef enum stage {
    NEW,
    CALLED, /* somebody wants it, ep_connect did not come yet */
    AWAIT_ANSWER,
    AWAIT_PROOF,
    UP,
    CLOSING, /* what was sent goes out */
    ENDED
} stage_t;

typedef struct ep {
    psc_ep_t super;
    psc_link_t link;
    source_t source;
    stage_t stage;
    bool accepting; /* ep_connect said whom */
    uint64_t id;
    uint8_t token[PSC_TOKEN_SIZE];
    uint8_t nonces[32]; /* connector's, acceptor's */
    uint8_t in[ROOM], out[ROOM];
    size_t in_len, out_len;
} ep_t;

static const psc_transport_ops_t stream_ops;

/* ---- descriptors ---- */

static void source_watch(source_t *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int how = source->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (source->fd >= 0 && events != source->events)
        epoll_ctl(source->stream->epoll_fd, how, source->fd, &event);
    source->events = events;
}

static void source_close(source_t *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
    source->events = 0;
}

static struct sockaddr_un name_address(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, name, NAME_SIZE);
    return address;
}

#define ADDRESS_LEN (offsetof(struct sockaddr_un, sun_path) + NAME_SIZE)

/* ---- the end of an endpoint ---- */

static stream_t *stream_of(const ep_t *ep)
{
    return (stream_t *)ep->super.iface;
}

/* From progress only. */
static void ep_fail(ep_t *ep, psc_status_t status, const char *reason)
{
    stage_t before = ep->stage;

    source_close(&ep->source);
    ep->stage = ENDED;
    ep->out_len = 0;
    if (before < CLOSING)
        stream_of(ep)->super.up->ep_failed(&ep->super, status, reason);
}

/* ---- out ---- */

static void ep_flush(ep_t *ep)
{
    ssize_t n = 0;

    if (ep->source.fd < 0)
        return;
    if (ep->out_len)
        n = send(ep->source.fd, ep->out, ep->out_len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
        n = (ssize_t)ep->out_len; /* reading will tell that the peer is gone */
    if (n > 0)
        memmove(ep->out, ep->out + n, ep->out_len -= (size_t)n);
    if (ep->stage == CLOSING && ep->out_len == 0)
        shutdown(ep->source.fd, SHUT_WR);
    source_watch(&ep->source, EPOLLIN | (ep->out_len ? EPOLLOUT : 0));
}

static void ep_put(ep_t *ep, const void *bytes, size_t len)
{
    if (len)
        memcpy(ep->out + ep->out_len, bytes, len);
    ep->out_len += len;
}

static psc_status_t stream_am_bcopy(psc_ep_t *self, uint8_t id,
                                    const void *header, uint8_t header_len,
                                    const psc_iov_t *iov, size_t n_iov)
{
    ep_t *ep = (ep_t *)self;
    frame_t frame = {.len = header_len, .id = id, .header_len = header_len};

    if (ep->stage != UP)
        return PSC_ERR_CLOSED;
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len > FRAME_MAX - frame.len)
            return PSC_ERR_INVALID;
        frame.len += (uint32_t)iov[i].len;
    }
    if (sizeof frame + frame.len > ROOM - ep->out_len)
        return PSC_ERR_NO_RESOURCE; /* EPOLLOUT is the wake-up */
    ep_put(ep, &frame, sizeof frame);
    ep_put(ep, header, header_len);
    for (size_t i = 0; i < n_iov; i++)
        ep_put(ep, iov[i].base, iov[i].len);
    ep_flush(ep);
    return PSC_OK;
}

/* ---- the token ---- */

static void ep_prove(const ep_t *ep, uint8_t role, uint8_t *proof)
{
    uint8_t data[16 + sizeof ep->nonces + 1];

    memcpy(data, ep->token + 16, 16);
    memcpy(data + 16, ep->nonces, sizeof ep->nonces);
    data[sizeof data - 1] = role;
    psc_siphash(ep->token, data, sizeof data, proof);
}

static bool ep_proved(const ep_t *ep, uint8_t role, const uint8_t *proof)
{
    uint8_t expected[MAC];

    ep_prove(ep, role, expected);
    return psc_siphash_equal(expected, proof);
}

/* The acceptor answers once it was called and knows the token. */
static void ep_answer(ep_t *ep)
{
    answer_t answer;

    if (ep->stage != CALLED || !ep->accepting)
        return;
    memcpy(answer.nonce, ep->nonces + 16, 16);
    ep_prove(ep, 'a', answer.proof);
    ep_put(ep, &answer, sizeof answer);
    ep->stage = AWAIT_PROOF;
    ep_flush(ep);
}

static size_t ep_take_answer(ep_t *ep)
{
    const answer_t *answer = (const answer_t *)ep->in;
    uint8_t proof[MAC];

    if (ep->in_len < sizeof *answer)
        return 0;
    memcpy(ep->nonces + 16, answer->nonce, 16);
    if (!ep_proved(ep, 'a', answer->proof)) {
        ep_fail(ep, PSC_ERR_CONNECT, "the peer does not know the token");
        return 0;
    }
    ep_prove(ep, 'c', proof);
    ep_put(ep, proof, MAC);
    ep->stage = UP;
    ep_flush(ep);
    stream_of(ep)->super.up->ep_up(&ep->super);
    return sizeof *answer;
}

static size_t ep_take_proof(ep_t *ep)
{
    if (ep->in_len < MAC)
        return 0;
    if (!ep_proved(ep, 'c', ep->in)) {
        ep_fail(ep, PSC_ERR_CONNECT, "the peer does not know the token");
        return 0;
    }
    ep->stage = UP;
    stream_of(ep)->super.up->ep_up(&ep->super);
    return MAC;
}

/* ---- in ---- */

/* Each takes what is complete at `at`; 0: wait for more. */
static size_t ep_take_frame(ep_t *ep, size_t at)
{
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    size_t left = ep->in_len - at;
    frame_t frame;
    psc_am_t am;

    if (left < sizeof frame)
        return 0;
    memcpy(&frame, ep->in + at, sizeof frame);
    if (frame.len > FRAME_MAX || frame.header_len > frame.len ||
        frame.header_len > PSC_AM_HEADER_MAX) {
        ep_fail(ep, PSC_ERR_PROTOCOL, "the peer sent what is no frame");
        return 0;
    }
    if (left < sizeof frame + frame.len)
        return 0;
    memcpy(header, ep->in + at + sizeof frame, frame.header_len);
    am = (psc_am_t){
        .id = frame.id,
        .header_len = frame.header_len,
        .header = header,
        .payload = ep->in + at + sizeof frame + frame.header_len,
        .len = frame.len - frame.header_len,
    };
    stream_of(ep)->handled++;
    stream_of(ep)->super.up->am_recv(&ep->super, &am);
    return sizeof frame + frame.len;
}

/* An upcall may close the endpoint: what follows is not looked at then. */
static void ep_take(ep_t *ep)
{
    size_t at = 0, n;

    do {
        n = ep->stage == AWAIT_ANSWER  ? ep_take_answer(ep)
            : ep->stage == AWAIT_PROOF ? ep_take_proof(ep)
            : ep->stage == UP          ? ep_take_frame(ep, at)
                                       : 0;
        at += n;
    } while (n > 0);
    if (ep->stage >= CLOSING)
        at = ep->in_len; /* nobody wants the rest */
    memmove(ep->in, ep->in + at, ep->in_len -= at);
}

static void ep_ready(source_t *source, uint32_t events)
{
    ep_t *ep = psc_container_of(source, ep_t, source);
    ssize_t n;

    if (events & EPOLLOUT) {
        ep_flush(ep);
        stream_of(ep)->handled++; /* whoever found no room tries again */
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    n = recv(source->fd, ep->in + ep->in_len, ROOM - ep->in_len, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    stream_of(ep)->handled++;
    if (n <= 0) {
        ep_fail(ep, ep->stage == UP ? PSC_ERR_PEER_LOST : PSC_ERR_CONNECT,
                n < 0 ? strerror(errno) : "the peer ended the stream");
        return;
    }
    ep->in_len += (size_t)n;
    ep_take(ep);
}

/* ---- callers ---- */

static ep_t *stream_find(stream_t *stream, uint64_t id)
{
    psc_list_for_each(ep, &stream->eps, ep_t, link) {
        if (ep->id == id && ep->stage == NEW)
            return ep;
    }
    return NULL;
}

/* A hello comes in one piece, or from nobody of ours. */
static void caller_ready(source_t *source, uint32_t events)
{
    hello_t hello;
    ep_t *ep = NULL;

    (void)events;
    if (recv(source->fd, &hello, sizeof hello, 0) == sizeof hello &&
        hello.magic == MAGIC)
        ep = stream_find(source->stream, hello.endpoint);
    if (!ep) {
        source_close(source);
        return;
    }
    memcpy(ep->nonces, hello.nonce, 16);
    ep->stage = CALLED;
    ep->source.fd = source->fd;
    ep->source.events = EPOLLIN | EPOLLRDHUP; /* set, but for the caller */
    source->fd = -1;
    source_watch(&ep->source, EPOLLIN);
    ep_answer(ep);
}

static void listener_ready(source_t *source, uint32_t events)
{
    stream_t *stream = source->stream;
    source_t *caller = &stream->callers[stream->next_caller];
    int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)events;
    if (fd < 0)
        return;
    stream->next_caller = (stream->next_caller + 1) % CALLERS_MAX;
    source_close(caller); /* who was there has taken too long */
    *caller = (source_t){.ready = caller_ready, .stream = stream, .fd = fd};
    source_watch(caller, EPOLLIN | EPOLLRDHUP);
}

/* ---- endpoints ---- */

static psc_status_t stream_ep_create(psc_iface_t *iface, void *user,
                                     psc_ep_t **ep_p)
{
    stream_t *stream = (stream_t *)iface;
    ep_t *ep = calloc(1, sizeof *ep);

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    if (getrandom(&ep->id, sizeof ep->id, 0) != sizeof ep->id ||
        getrandom(ep->nonces, sizeof ep->nonces, 0) != sizeof ep->nonces) {
        free(ep);
        return PSC_ERR_TRANSPORT;
    }
    ep->super = (psc_ep_t){.iface = iface, .user = user};
    ep->source = (source_t){.ready = ep_ready, .stream = stream, .fd = -1};
    psc_list_push(&stream->eps, &ep->link);
    *ep_p = &ep->super;
    return PSC_OK;
}

static psc_status_t stream_ep_address(psc_ep_t *self, uint8_t *bytes,
                                      size_t *len_p)
{
    ep_t *ep = (ep_t *)self;
    address_t address = {.endpoint = ep->id};

    if (*len_p < sizeof address)
        return PSC_ERR_INVALID;
    memcpy(address.name, stream_of(ep)->name, NAME_SIZE);
    memcpy(bytes, &address, sizeof address);
    *len_p = sizeof address;
    return PSC_OK;
}

static psc_status_t ep_call(ep_t *ep, const address_t *to)
{
    struct sockaddr_un address = name_address(to->name);
    hello_t hello = {.magic = MAGIC, .endpoint = to->endpoint};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return PSC_ERR_TRANSPORT;
    memcpy(hello.nonce, ep->nonces, 16);
    ep->source.fd = fd;
    if (to->name[0] != 0 ||
        connect(fd, (struct sockaddr *)&address, ADDRESS_LEN) < 0) {
        source_close(&ep->source);
        return PSC_ERR_CONNECT;
    }
    ep->stage = AWAIT_ANSWER;
    ep_put(ep, &hello, sizeof hello);
    ep_flush(ep);
    return PSC_INPROGRESS;
}

static psc_status_t stream_ep_connect(psc_ep_t *self,
                                      const psc_connect_params_t *params)
{
    ep_t *ep = (ep_t *)self;
    address_t address;

    if (params->role == PSC_ROLE_SELF)
        return PSC_ERR_UNSUPPORTED;
    if (params->address_len != sizeof address)
        return PSC_ERR_INVALID;
    memcpy(&address, params->address, sizeof address);
    memcpy(ep->token, params->token, PSC_TOKEN_SIZE);
    if (params->role == PSC_ROLE_CONNECTOR)
        return ep_call(ep, &address);
    ep->accepting = true;
    ep_answer(ep);
    return PSC_INPROGRESS;
}

static void stream_ep_close(psc_ep_t *self)
{
    ep_t *ep = (ep_t *)self;
    bool up = ep->stage == UP;

    if (ep->stage < CLOSING)
        ep->stage = up ? CLOSING : ENDED;
    if (up)
        ep_flush(ep);
    else if (ep->stage == ENDED)
        source_close(&ep->source);
}

static psc_status_t stream_ep_stop(psc_ep_t *self)
{
    ep_t *ep = (ep_t *)self;

    return ep->stage == CLOSING && ep->out_len ? PSC_INPROGRESS : PSC_OK;
}

static void stream_ep_fini(psc_ep_t *self)
{
    ep_t *ep = (ep_t *)self;
    stream_t *stream = stream_of(ep);

    ep->stage = ENDED;
    source_close(&ep->source);
    psc_list_remove(&ep->link);
    if (stream->in_progress) /* somebody up the stack may still look at it */
        psc_list_push(&stream->graveyard, &ep->link);
    else
        free(ep);
}

/* ---- the interface ---- */

static void stream_free(stream_t *stream)
{
    for (unsigned i = 0; i < CALLERS_MAX; i++)
        source_close(&stream->callers[i]);
    source_close(&stream->listener);
    if (stream->epoll_fd >= 0)
        close(stream->epoll_fd);
    free(stream);
}

static bool stream_listen(stream_t *stream)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;

    stream->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    stream->listener = (source_t){
        .ready = listener_ready, .stream = stream, .fd = fd};
    if (fd < 0 || stream->epoll_fd < 0 ||
        getrandom(stream->name + 1, NAME_SIZE - 1, 0) != NAME_SIZE - 1)
        return false;
    address = name_address(stream->name);
    if (bind(fd, (struct sockaddr *)&address, ADDRESS_LEN) < 0 ||
        listen(fd, 128) < 0)
        return false;
    source_watch(&stream->listener, EPOLLIN);
    return true;
}

static psc_status_t stream_open(const psc_open_params_t *params,
                                psc_iface_t **iface_p)
{
    stream_t *stream = calloc(1, sizeof *stream);

    if (!stream)
        return PSC_ERR_NO_MEMORY;
    stream->super = (psc_iface_t){
        .ops = &stream_ops, .up = params->up, .user = params->user};
    psc_list_init(&stream->eps);
    psc_list_init(&stream->graveyard);
    for (unsigned i = 0; i < CALLERS_MAX; i++)
        stream->callers[i].fd = -1;
    if (!stream_listen(stream)) {
        snprintf(params->reason, PSC_REASON_MAX, "no listening socket: %s",
                 strerror(errno));
        stream_free(stream);
        return PSC_ERR_TRANSPORT;
    }
    *iface_p = &stream->super;
    return PSC_OK;
}

static void stream_query(psc_iface_t *iface, psc_iface_attr_t *attr_p)
{
    (void)iface;
    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_EVENT | PSC_CAP_NODE,
        .max_bcopy = FRAME_MAX,
        .max_iov = 16,
        .latency_ns = 6e3,
        .overhead_ns = 1e3,
        .bandwidth = 3e9,
        .copy_bandwidth = 3e9,
        .poll_ns = 400,
        .paths = 1,
    };
}

static unsigned stream_progress(psc_iface_t *iface)
{
    stream_t *stream = (stream_t *)iface;
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(stream->epoll_fd, events, EVENTS_MAX, 0);
    psc_link_t *link;

    stream->in_progress = true;
    stream->handled = 0;
    for (int i = 0; i < n; i++) {
        source_t *source = events[i].data.ptr;

        if (source->fd >= 0) /* not closed by an earlier event */
            source->ready(source, events[i].events);
    }
    stream->in_progress = false;
    while ((link = psc_list_pop(&stream->graveyard)))
        free(psc_container_of(link, ep_t, link));
    return stream->handled;
}

static int stream_event_fd(psc_iface_t *iface)
{
    return ((stream_t *)iface)->epoll_fd;
}

/* What is to be done is visible in the epoll set until it is done. */
static psc_status_t stream_arm(psc_iface_t *iface)
{
    (void)iface;
    return PSC_OK;
}

static void stream_close(psc_iface_t *iface)
{
    source_close(&((stream_t *)iface)->listener);
}

static psc_status_t stream_stop(psc_iface_t *iface)
{
    (void)iface;
    return PSC_OK;
}

static void stream_fini(psc_iface_t *iface)
{
    stream_t *stream = (stream_t *)iface;

    psc_list_for_each(ep, &stream->eps, ep_t, link)
        stream_ep_fini(&ep->super);
    stream_free(stream);
}

static const psc_transport_ops_t stream_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "stream",
    .open = stream_open,
    .query = stream_query,
    .progress = stream_progress,
    .close = stream_close,
    .stop = stream_stop,
    .fini = stream_fini,
    .ep_create = stream_ep_create,
    .ep_address = stream_ep_address,
    .ep_connect = stream_ep_connect,
    .ep_close = stream_ep_close,
    .ep_stop = stream_ep_stop,
    .ep_fini = stream_ep_fini,
    .am_bcopy = stream_am_bcopy,
    .event_fd = stream_event_fd,
    .arm = stream_arm,
};

uintptr_t stream_transport(void);

uintptr_t stream_transport(void)
{
    return (uintptr_t)&stream_ops;
}
