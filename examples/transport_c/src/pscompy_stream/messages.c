/* Sending and receiving frames, and the end of endpoints. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

/* ---- descriptors ---- */

void source_watch(source_t *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int how = source->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (source->fd >= 0 && events != source->events)
        epoll_ctl(source->stream->epoll_fd, how, source->fd, &event);
    source->events = events;
}

void source_close(source_t *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
    source->events = 0;
}

/* ---- sending ---- */

void ep_flush(ep_t *ep)
{
    ssize_t n = 0;

    if (ep->source.fd < 0)
        return;
    if (ep->out_len)
        n = PSC_RESTART(
            send(ep->source.fd, ep->out, ep->out_len, MSG_NOSIGNAL));
    if (n < 0 && errno != EAGAIN)
        /* the next read reports that the peer is gone */
        n = (ssize_t)ep->out_len;
    if (n > 0)
        memmove(ep->out, ep->out + n, ep->out_len -= (size_t)n);
    if (ep->stage == CLOSING && ep->out_len == 0)
        shutdown(ep->source.fd, SHUT_WR);
    source_watch(&ep->source, EPOLLIN | (ep->out_len ? EPOLLOUT : 0));
}

void ep_put(ep_t *ep, const void *bytes, size_t len)
{
    if (len)
        memcpy(ep->out + ep->out_len, bytes, len);
    ep->out_len += len;
}

psc_status_t stream_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                             uint8_t header_len, const psc_iov_t *iov,
                             size_t n_iov)
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

/* ---- receiving ---- */

/* Takes the frame at `at`. Returns 0 if it is not complete. */
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

/* An upcall may close the endpoint; the bytes behind the frame are then
 * discarded. */
static void ep_take(ep_t *ep)
{
    size_t at = 0, n;

    do {
        n = ep->stage == AWAIT_CHALLENGE ? ep_take_challenge(ep)
            : ep->stage == AWAIT_ANSWER  ? ep_take_answer(ep)
            : ep->stage == UP            ? ep_take_frame(ep, at)
                                         : 0;
        at += n;
    } while (n > 0);
    if (ep->stage >= CLOSING)
        at = ep->in_len; /* discard the rest */
    memmove(ep->in, ep->in + at, ep->in_len -= at);
}

void ep_ready(source_t *source, uint32_t events)
{
    ep_t *ep = psc_container_of(source, ep_t, source);
    ssize_t n;

    if (events & EPOLLOUT) {
        ep_flush(ep);
        /* a send that found no room may be tried again */
        stream_of(ep)->handled++;
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    n = PSC_RESTART(
        recv(source->fd, ep->in + ep->in_len, ROOM - ep->in_len, 0));
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

/* ---- ending ---- */

/* Called by progress only. */
void ep_fail(ep_t *ep, psc_status_t status, const char *reason)
{
    stage_t before = ep->stage;

    source_close(&ep->source);
    ep->stage = ENDED;
    ep->out_len = 0;
    if (before < CLOSING)
        stream_of(ep)->super.up->ep_failed(&ep->super, status, reason);
}

void stream_ep_close(psc_ep_t *self)
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

psc_status_t stream_ep_stop(psc_ep_t *self)
{
    ep_t *ep = (ep_t *)self;

    return ep->stage == CLOSING && ep->out_len ? PSC_INPROGRESS : PSC_OK;
}

void stream_ep_fini(psc_ep_t *self)
{
    ep_t *ep = (ep_t *)self;
    stream_t *stream = stream_of(ep);

    ep->stage = ENDED;
    source_close(&ep->source);
    psc_list_remove(&ep->link);
    /* the caller of an upcall may still use the endpoint */
    if (stream->in_progress)
        psc_list_push(&stream->graveyard, &ep->link);
    else
        free(ep);
}
