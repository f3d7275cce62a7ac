/* Sending frames. If nothing is queued, a message is passed to the socket at
 * once: one system call, and no copy but the kernel's. Bytes that the socket
 * does not accept are queued in order, in the out-ring (a ring buffer with
 * copied bytes) or in the list of zero-copy sends (bytes in the caller's
 * memory). */
#include <errno.h>
#include <stdlib.h>

#include "tcp.h"
#include "pscompy/transport/kit/restart.h"

#define TCP_PREFIX_MAX (TCP_FRAME_SIZE + PSC_AM_HEADER_MAX)
/* maximum number of system calls for sending, per endpoint and call of
 * progress */
#define TCP_FLUSH_TURNS 4
/* maximum number of contiguous pieces of the out-ring: before and after the
 * wrap-around */
#define TCP_RING_IOV 2

/* ---- the out-ring ---- */

psc_status_t tcp_out_init(tcp_out_t *out, size_t buffer_size)
{
    out->room = 4096;
    while (out->room < 2 * (buffer_size + TCP_PREFIX_MAX))
        out->room *= 2;
    out->ring = malloc(out->room);
    return out->ring ? PSC_OK : PSC_ERR_NO_MEMORY;
}

void tcp_out_free(tcp_out_t *out)
{
    free(out->ring);
}

static void tcp_out_copy(tcp_out_t *out, const void *bytes, size_t len)
{
    size_t at = out->tail % out->room;
    size_t before = len < out->room - at ? len : out->room - at;

    if (len == 0)
        return;
    memcpy(out->ring + at, bytes, before);
    memcpy(out->ring, (const uint8_t *)bytes + before, len - before);
    out->tail += len;
}

/* Stores where the out-ring's bytes up to position `end` are, as at most
 * TCP_RING_IOV pieces. Returns the number of pieces. */
static unsigned tcp_out_pieces(const tcp_out_t *out, uint64_t end,
                               struct iovec *iov)
{
    size_t at = out->head % out->room, len = end - out->head;
    size_t before = len < out->room - at ? len : out->room - at;

    if (len == 0)
        return 0;
    iov[0] = (struct iovec){out->ring + at, before};
    if (len == before)
        return 1;
    iov[1] = (struct iovec){out->ring, len - before};
    return 2;
}

static tcp_send_t *tcp_send_at(tcp_out_t *out, uint64_t position)
{
    return &out->sends[position % TCP_SENDS_MAX];
}

/* ---- the socket ---- */

/* Sends the pieces. For a single piece send() is faster than sendmsg(), by
 * about 50 ns. */
static ssize_t tcp_fd_send(int fd, struct iovec *iov, size_t n_iov)
{
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};

    if (n_iov == 1)
        return send(fd, iov->iov_base, iov->iov_len, flags);
    return sendmsg(fd, &message, flags);
}

/* Returns the number of bytes that the kernel took, or 0 if the socket's buffer
 * is full. Returns -1 if the stream is broken; the next read reports the
 * failure. */
static ssize_t tcp_socket_send(tcp_ep_t *ep, struct iovec *iov, size_t n_iov)
{
    int fd = ep->tx.fd < 0 ? ep->rx.fd : ep->tx.fd;
    ssize_t n;

    n = PSC_RESTART(tcp_fd_send(fd, iov, n_iov));
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        return 0;
    if (errno == EFAULT)
        tcp_ep_break(ep, PSC_ERR_INVALID,
                     "a buffer that was to be sent is not ours to read");
    ep->out.finished = true;
    return -1;
}

/* Removes the first n bytes, which are sent, from the pieces. Returns the index
 * of the first piece that is not empty. */
static unsigned tcp_iov_skip(struct iovec *iov, unsigned at, unsigned n_iov,
                             size_t n)
{
    while (at < n_iov && n >= iov[at].iov_len)
        n -= iov[at++].iov_len;
    if (at < n_iov) {
        iov[at].iov_base = (uint8_t *)iov[at].iov_base + n;
        iov[at].iov_len -= n;
    }
    return at;
}

/* ---- flushing ---- */

/* Updates n_holding, the number of endpoints whose out-ring holds bytes of
 * sends that were reported as complete. Notifies the core when the first such
 * endpoint appears and when the last one disappears: while there are any, the
 * core keeps calling progress. */
static void tcp_out_account(tcp_ep_t *ep)
{
    tcp_iface_t *iface = (tcp_iface_t *)ep->super.iface;
    tcp_out_t *out = &ep->out;
    bool holding = !out->finished && out->head < out->owed;

    if (holding == out->holding)
        return;
    out->holding = holding;
    iface->n_holding += holding ? 1 : -1u;
    if (iface->n_holding == (holding ? 1u : 0u))
        iface->super.up->holding(&iface->super, holding);
}

void tcp_out_finish(tcp_ep_t *ep)
{
    ep->out.finished = true;
    tcp_out_account(ep);
}

/* Called after sending: watches the socket for room if bytes are queued, or
 * shuts the socket down if the endpoint is closing and nothing is queued. */
static void tcp_out_rest(tcp_ep_t *ep)
{
    if (ep->state == TCP_EP_CLOSING && tcp_out_empty(&ep->out))
        shutdown(ep->rx.fd, SHUT_WR);
    tcp_out_account(ep);
    tcp_ep_watch(ep);
}

/* Stores which bytes are to be sent next: those of the out-ring up to the first
 * zero-copy send, then the pieces of this send. */
static unsigned tcp_out_next(tcp_out_t *out, struct iovec *iov)
{
    tcp_send_t *send;
    unsigned n;

    if (out->first_send == out->last_send)
        return tcp_out_pieces(out, out->tail, iov);
    send = tcp_send_at(out, out->first_send);
    n = tcp_out_pieces(out, send->after, iov);
    for (unsigned i = send->at; i < send->n_iov; i++)
        iov[n++] = send->iov[i];
    return n;
}

/* Removes n bytes, which the kernel has taken, from the queue. Returns the
 * zero-copy send whose last byte was among them, or NULL. */
static tcp_send_t *tcp_out_took(tcp_out_t *out, size_t n)
{
    bool sends = out->first_send != out->last_send;
    tcp_send_t *send = tcp_send_at(out, out->first_send);
    uint64_t end = sends ? send->after : out->tail;
    size_t from_ring = n < end - out->head ? n : end - out->head;

    out->head += from_ring;
    if (!sends)
        return NULL;
    send->at = tcp_iov_skip(send->iov, send->at, send->n_iov, n - from_ring);
    if (out->head < send->after || send->at < send->n_iov)
        return NULL;
    out->first_send++;
    return send;
}

/* Sends queued bytes with one system call. Returns false if the socket takes no
 * more for now. *done_p becomes the zero-copy send that this call completed, or
 * NULL. */
static bool tcp_out_push(tcp_ep_t *ep, tcp_send_t **done_p)
{
    struct iovec iov[TCP_RING_IOV + TCP_IOV_MAX];
    unsigned n_iov = tcp_out_next(&ep->out, iov);
    ssize_t n = tcp_socket_send(ep, iov, n_iov);

    *done_p = n > 0 ? tcp_out_took(&ep->out, (size_t)n) : NULL;
    if (*done_p && tcp_ep_iface(ep)->settings.paced)
        tcp_pace(ep);
    return n > 0;
}

void tcp_out_flush(tcp_ep_t *ep)
{
    tcp_iface_t *iface = (tcp_iface_t *)ep->super.iface;
    unsigned turns = TCP_FLUSH_TURNS;
    tcp_send_t *done;

    while (!tcp_out_empty(&ep->out) && turns-- > 0 && tcp_out_push(ep, &done)) {
        iface->handled++;
        if (done)
            done->comp->func(done->comp, PSC_OK);
    }
    tcp_out_rest(ep);
}

void tcp_out_cancel(tcp_ep_t *ep, psc_status_t status)
{
    tcp_out_t *out = &ep->out;

    tcp_out_finish(ep);
    while (out->first_send != out->last_send) {
        tcp_send_t *send = tcp_send_at(out, out->first_send++);

        send->comp->func(send->comp, status);
    }
}

/* ---- sending ---- */

static psc_status_t tcp_send_check(const tcp_ep_t *ep, uint8_t header_len,
                                   size_t n_iov)
{
    if (ep->state != TCP_EP_UP)
        return ep->state >= TCP_EP_CLOSING ? PSC_ERR_CLOSED : PSC_ERR_PEER_LOST;
    if (ep->out.finished)
        return PSC_ERR_PEER_LOST;
    if (header_len > PSC_AM_HEADER_MAX || n_iov > TCP_IOV_MAX)
        return PSC_ERR_INVALID;
    return PSC_OK;
}

static size_t tcp_prefix_make(uint8_t *prefix, uint8_t id, const void *header,
                              uint8_t header_len, uint64_t len)
{
    tcp_frame_t frame = {TCP_KIND_AM, id, header_len, len};

    tcp_frame_pack(prefix, &frame);
    if (header_len > 0)
        memcpy(prefix + TCP_FRAME_SIZE, header, header_len);
    return TCP_FRAME_SIZE + header_len;
}

static bool tcp_out_has_room(const tcp_out_t *out, size_t len)
{
    /* keep room for the goodbye, the frame that ends the stream */
    return len + TCP_FRAME_SIZE <= out->room - (out->tail - out->head);
}

/* Sends a message, or copies what the socket does not take into the out-ring.
 * The first piece is the prefix (frame header and message header). */
static psc_status_t tcp_send_copied(tcp_ep_t *ep, struct iovec *iov,
                                    unsigned n_iov, size_t len)
{
    bool idle = tcp_out_empty(&ep->out);
    ssize_t n = 0;
    unsigned at;

    if (idle) {
        n = tcp_socket_send(ep, iov, n_iov);
        if (n < 0)
            return PSC_ERR_PEER_LOST;
        if ((size_t)n == len)
            return PSC_OK;
    } else if (!tcp_out_has_room(&ep->out, len)) {
        return PSC_ERR_NO_RESOURCE;
    }
    at = tcp_iov_skip(iov, 0, n_iov, (size_t)n);
    for (; at < n_iov; at++)
        tcp_out_copy(&ep->out, iov[at].iov_base, iov[at].iov_len);
    ep->out.owed = ep->out.tail;
    tcp_out_rest(ep);
    return PSC_OK;
}

psc_status_t tcp_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    const tcp_iface_t *iface = (const tcp_iface_t *)self->iface;
    uint8_t prefix[TCP_PREFIX_MAX];
    struct iovec pieces[1 + TCP_IOV_MAX];
    size_t len = 0, prefix_len;
    psc_status_t status = tcp_send_check(ep, header_len, n_iov);

    if (status != PSC_OK)
        return status;
    for (size_t i = 0; i < n_iov; i++) {
        pieces[1 + i] = (struct iovec){iov[i].base, iov[i].len};
        len += iov[i].len;
    }
    if (header_len + len > iface->settings.buffer_size)
        return PSC_ERR_INVALID;
    tcp_rail_sends(ep);
    prefix_len = tcp_prefix_make(prefix, id, header, header_len, len);
    pieces[0] = (struct iovec){prefix, prefix_len};
    return tcp_send_copied(ep, pieces, 1 + (unsigned)n_iov, prefix_len + len);
}

/* Prepares for a message that is longer than short_max, which is 0 for a spare
 * endpoint. */
static psc_status_t tcp_am_not_short(tcp_ep_t *ep, size_t len)
{
    if (!ep->spare || len > TCP_SHORT_MAX)
        return PSC_ERR_INVALID;
    tcp_rail_sends(ep);
    return PSC_OK;
}

psc_status_t tcp_am_short(psc_ep_t *self, uint8_t id, const void *header,
                          uint8_t header_len, const void *payload, size_t len)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    uint8_t frame[TCP_FRAME_SIZE + TCP_SHORT_MAX];
    struct iovec piece = {.iov_base = frame};
    psc_status_t status = tcp_send_check(ep, header_len, 1);

    if (status == PSC_OK && header_len + len > ep->short_max)
        status = tcp_am_not_short(ep, header_len + len);
    if (status != PSC_OK)
        return status;
    piece.iov_len = tcp_prefix_make(frame, id, header, header_len, len);
    if (len > 0)
        memcpy(frame + piece.iov_len, payload, len);
    piece.iov_len += len;
    return tcp_send_copied(ep, &piece, 1, piece.iov_len);
}

/* Queues the pieces of a zero-copy send. They are sent after the bytes that the
 * out-ring holds now, the last of which are the prefix of this frame. */
static tcp_send_t *tcp_send_queue(tcp_out_t *out, const psc_iov_t *iov,
                                  size_t n_iov, psc_comp_t *comp)
{
    tcp_send_t *send = tcp_send_at(out, out->last_send++);

    *send = (tcp_send_t){.after = out->tail, .comp = comp};
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len > 0)
            send->iov[send->n_iov++] = (struct iovec){iov[i].base, iov[i].len};
    }
    return send;
}

/* Begins the only zero-copy send that is queued. Returns PSC_OK if the kernel
 * took all of it at once, so that the send has completed; PSC_INPROGRESS if a
 * part is left. */
static psc_status_t tcp_send_first(tcp_ep_t *ep)
{
    tcp_send_t *done;

    (void)tcp_out_push(ep, &done);
    if (done)
        return PSC_OK;
    if (ep->out.finished) {
        ep->out.first_send = ep->out.last_send;
        return PSC_ERR_PEER_LOST;
    }
    tcp_out_rest(ep);
    return PSC_INPROGRESS;
}

psc_status_t tcp_am_zcopy(psc_ep_t *self, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov, psc_comp_t *comp)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    tcp_out_t *out = &ep->out;
    uint8_t prefix[TCP_PREFIX_MAX];
    uint64_t len = 0;
    psc_status_t status = tcp_send_check(ep, header_len, n_iov);
    bool idle = tcp_out_empty(out);

    if (status != PSC_OK)
        return status;
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len > TCP_ZCOPY_MAX - len)
            return PSC_ERR_INVALID;
        len += iov[i].len;
    }
    if (out->last_send - out->first_send == TCP_SENDS_MAX ||
        !tcp_out_has_room(out, TCP_PREFIX_MAX))
        return PSC_ERR_NO_RESOURCE;
    tcp_rail_sends(ep);
    tcp_out_copy(out, prefix,
                 tcp_prefix_make(prefix, id, header, header_len, len));
    tcp_send_queue(out, iov, n_iov, comp);
    return idle ? tcp_send_first(ep) : PSC_INPROGRESS;
}

/* Called by ep_close: queues the goodbye, the last frame. ep_close may not
 * complete sends, so if zero-copy sends are queued, nothing is sent here and
 * progress sends the goodbye after them. */
void tcp_out_goodbye(tcp_ep_t *ep)
{
    tcp_out_t *out = &ep->out;
    uint8_t frame[TCP_FRAME_SIZE];
    tcp_send_t *done;

    tcp_frame_pack(frame, &(tcp_frame_t){.kind = TCP_KIND_GOODBYE});
    tcp_out_copy(out, frame, sizeof(frame));
    if (out->first_send == out->last_send && !tcp_out_empty(out))
        (void)tcp_out_push(ep, &done);
    tcp_out_rest(ep);
}
