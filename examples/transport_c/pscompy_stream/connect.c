/* How endpoints are made, find each other, and prove the token. */
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

size_t ep_take_answer(ep_t *ep)
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

size_t ep_take_proof(ep_t *ep)
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

void listener_ready(source_t *source, uint32_t events)
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

psc_status_t stream_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p)
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
    memcpy(ep->token, params->token, PSC_TOKEN_SIZE);
    if (params->role == PSC_ROLE_CONNECTOR)
        return ep_call(ep, &address);
    ep->accepting = true;
    ep_answer(ep);
    return PSC_INPROGRESS;
}
