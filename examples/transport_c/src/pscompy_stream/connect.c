/* Endpoints: creating, addresses, connecting, and the token proof. */
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "stream.h"

/* ---- names ---- */

struct sockaddr_un name_address(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, name, NAME_SIZE);
    return address;
}

/* ---- the token ---- */

/* Passes a message of the token proof to the proof's state machine, and sends
 * the reply. */
static void ep_prove(ep_t *ep, psc_proof_kind_t kind, const uint8_t *body,
                     size_t len)
{
    psc_proof_reply_t reply;

    psc_proof_receive(&ep->proof, kind, body, len, &reply);
    if (reply.verdict == PSC_PROOF_REFUSED) {
        ep_fail(ep, PSC_ERR_CONNECT, reply.why);
        return;
    }
    if (reply.kind != PSC_PROOF_NONE)
        ep_put(ep, reply.body, reply.len);
    ep->stage = reply.verdict == PSC_PROOF_ACCEPTED ? UP : AWAIT_ANSWER;
    ep_flush(ep);
    if (ep->stage == UP)
        stream_of(ep)->super.up->ep_up(&ep->super);
}

/* The acceptor answers once a caller has arrived and ep_connect has passed the
 * token. */
static void ep_answer(ep_t *ep)
{
    if (ep->stage == CALLED && ep->accepting)
        ep_prove(ep, PSC_PROOF_HELLO, ep->caller_nonce, PSC_PROOF_NONCE_SIZE);
}

size_t ep_take_challenge(ep_t *ep)
{
    if (ep->in_len < PSC_PROOF_CHALLENGE_SIZE)
        return 0;
    ep_prove(ep, PSC_PROOF_CHALLENGE, ep->in, PSC_PROOF_CHALLENGE_SIZE);
    return PSC_PROOF_CHALLENGE_SIZE;
}

size_t ep_take_answer(ep_t *ep)
{
    if (ep->in_len < PSC_PROOF_SIZE)
        return 0;
    ep_prove(ep, PSC_PROOF_ANSWER, ep->in, PSC_PROOF_SIZE);
    return PSC_PROOF_SIZE;
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

/* A hello of this transport arrives in one piece; anything else is refused. */
static void caller_ready(source_t *source, uint32_t events)
{
    hello_t hello;
    ep_t *ep = NULL;

    (void)events;
    if (PSC_RESTART(recv(source->fd, &hello, sizeof hello, 0)) ==
            sizeof hello &&
        hello.magic == MAGIC)
        ep = stream_find(source->stream, hello.endpoint);
    if (!ep) {
        source_close(source);
        return;
    }
    memcpy(ep->caller_nonce, hello.nonce, sizeof hello.nonce);
    ep->stage = CALLED;
    ep->source.fd = source->fd;
    /* in the epoll set already, with the caller's source */
    ep->source.events = EPOLLIN | EPOLLRDHUP;
    source->fd = -1;
    source_watch(&ep->source, EPOLLIN);
    ep_answer(ep);
}

void listener_ready(source_t *source, uint32_t events)
{
    stream_t *stream = source->stream;
    source_t *caller = &stream->callers[stream->next_caller];
    int fd = PSC_RESTART(
        accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

    (void)events;
    if (fd < 0)
        return;
    stream->next_caller = (stream->next_caller + 1) % CALLERS_MAX;
    source_close(caller); /* the caller before took too long */
    *caller = (source_t){.ready = caller_ready, .stream = stream, .fd = fd};
    source_watch(caller, EPOLLIN | EPOLLRDHUP);
}

/* ---- endpoints ---- */

psc_status_t stream_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p)
{
    stream_t *stream = (stream_t *)iface;
    ep_t *ep = calloc(1, sizeof *ep);

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    if (getrandom(&ep->id, sizeof ep->id, 0) != sizeof ep->id) {
        free(ep);
        return PSC_ERR_TRANSPORT;
    }
    ep->super = (psc_ep_t){.iface = iface, .user = user};
    ep->source = (source_t){.ready = ep_ready, .stream = stream, .fd = -1};
    psc_list_push(&stream->eps, &ep->link);
    *ep_p = &ep->super;
    return PSC_OK;
}

psc_status_t stream_ep_address(psc_ep_t *self, uint8_t *bytes, size_t *len_p)
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
    memcpy(hello.nonce, psc_proof_hello(&ep->proof), sizeof hello.nonce);
    ep->source.fd = fd;
    if (to->name[0] != 0 ||
        connect(fd, (struct sockaddr *)&address, ADDRESS_LEN) < 0) {
        source_close(&ep->source);
        return PSC_ERR_CONNECT;
    }
    ep->stage = AWAIT_CHALLENGE;
    ep_put(ep, &hello, sizeof hello);
    ep_flush(ep);
    return PSC_INPROGRESS;
}

psc_status_t stream_ep_connect(psc_ep_t *self,
                               const psc_connect_params_t *params)
{
    ep_t *ep = (ep_t *)self;
    address_t address;

    if (params->role == PSC_ROLE_SELF)
        return PSC_ERR_UNSUPPORTED;
    if (params->address_len != sizeof address)
        return PSC_ERR_INVALID;
    memcpy(&address, params->address, sizeof address);
    if (!psc_proof_begin(&ep->proof, params->role, params->token, ep->id,
                         address.endpoint))
        return PSC_ERR_TRANSPORT;
    if (params->role == PSC_ROLE_CONNECTOR)
        return ep_call(ep, &address);
    ep->accepting = true;
    ep_answer(ep);
    return PSC_INPROGRESS;
}
