/* Receiving frames. One read fills the read buffer, and whole frames are
 * delivered from it. If only a part of a long payload has arrived, the rest of
 * it is read directly into the memory that the protocol supplies (in->dest),
 * and the same read takes the bytes behind the payload. */
#include <errno.h>
#include <stdlib.h>

#include "tcp.h"
#include "pscompy/transport/kit/restart.h"

/* Length of a read into the read buffer after a long payload. The next payload
 * is probably long, too, and those of its bytes that are read before its header
 * is known must be copied once more. Also the number of bytes that a read may
 * take behind a payload. */
#define TCP_READ_AHEAD 512u

psc_status_t tcp_in_init(tcp_in_t *in)
{
    in->buffer = malloc(TCP_READ_MAX);
    return in->buffer ? PSC_OK : PSC_ERR_NO_MEMORY;
}

void tcp_in_free(tcp_in_t *in)
{
    free(in->buffer);
}

static const psc_upcalls_t *tcp_ep_up(const tcp_ep_t *ep)
{
    return ep->super.iface->up;
}

/* ---- the stream's end ---- */

static void tcp_stream_end(tcp_ep_t *ep, ssize_t n)
{
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0)
        tcp_ep_break(ep, PSC_ERR_PEER_LOST, "%s: %s", ep->peer,
                     strerror(errno));
    else if (ep->in.goodbye)
        tcp_ep_break(ep, PSC_ERR_CLOSED, "%s closed the connection", ep->peer);
    else
        tcp_ep_break(ep, PSC_ERR_PEER_LOST,
                     "%s is gone: its stream ended without a goodbye",
                     ep->peer);
}

/* ---- a payload with a destination ---- */

/* Returns how many bytes of a piece of the destination are not filled yet; 0 if
 * the protocol has shortened the piece meanwhile. */
static size_t tcp_piece_left(const psc_iov_t *piece, size_t filled)
{
    return piece->len > filled ? piece->len - filled : 0;
}

/* Stores in `iov` which memory of the destination is still to be filled.
 * Returns the total length of this memory. */
static size_t tcp_dest_pieces(const tcp_in_t *in, struct iovec *iov,
                              unsigned *n_iov_p)
{
    size_t offset = in->dest_offset, room = 0;
    unsigned n = 0;

    for (size_t i = in->dest_at; i < in->dest.n_iov && n < TCP_IOV_MAX; i++) {
        size_t len = tcp_piece_left(&in->dest.iov[i], offset);

        if (len > in->body_left - room)
            len = (size_t)(in->body_left - room);
        if (len > 0)
            iov[n++] =
                (struct iovec){(uint8_t *)in->dest.iov[i].base + offset, len};
        room += len;
        offset = 0;
    }
    *n_iov_p = n;
    return room;
}

static void tcp_dest_advance(tcp_in_t *in, size_t n)
{
    while (in->dest_at < in->dest.n_iov) {
        size_t left =
            tcp_piece_left(&in->dest.iov[in->dest_at], in->dest_offset);

        if (n < left)
            break;
        n -= left;
        in->dest_at++;
        in->dest_offset = 0;
    }
    in->dest_offset += n;
}

/* Copies payload bytes from the read buffer to the destination; bytes that do
 * not fit into the destination are dropped. */
static void tcp_body_take_buffered(tcp_in_t *in)
{
    while (in->body_left > 0 && in->start < in->end) {
        size_t len = in->end - in->start;

        if (len > in->body_left)
            len = (size_t)in->body_left;
        if (in->dest_at < in->dest.n_iov) {
            const psc_iov_t *piece = &in->dest.iov[in->dest_at];

            if (len > tcp_piece_left(piece, in->dest_offset))
                len = tcp_piece_left(piece, in->dest_offset);
            if (len > 0)
                memcpy((uint8_t *)piece->base + in->dest_offset,
                       in->buffer + in->start, len);
            tcp_dest_advance(in, len);
        }
        in->start += len;
        in->body_left -= len;
    }
}

/* Makes one read: payload bytes go into the destination, and the bytes behind
 * the payload into the read buffer. */
static ssize_t tcp_body_read(tcp_ep_t *ep)
{
    tcp_in_t *in = &ep->in;
    struct iovec iov[TCP_IOV_MAX + 1];
    unsigned n_iov;
    size_t direct = tcp_dest_pieces(in, iov, &n_iov), placed;
    ssize_t n;

    /* if `iov` is not full, it has all remaining pieces of the destination, so
     * the bytes behind them may go into the read buffer */
    if (n_iov < TCP_IOV_MAX)
        iov[n_iov++] = (struct iovec){in->buffer, TCP_READ_AHEAD};
    n = PSC_RESTART(readv(ep->rx.fd, iov, (int)n_iov));
    if (n <= 0)
        return n;
    placed = (size_t)n < direct ? (size_t)n : direct;
    tcp_dest_advance(in, placed);
    in->body_left -= placed;
    in->start = 0;
    in->end = (size_t)n - placed;
    tcp_body_take_buffered(in);
    if (in->body_left == 0)
        tcp_ep_up(ep)->am_end(&ep->super, in->dest.cookie);
    return n;
}

static void tcp_body_begin(tcp_ep_t *ep, const tcp_frame_t *frame)
{
    tcp_in_t *in = &ep->in;

    in->dest = (psc_dest_t){0};
    in->long_ones = true;
    tcp_ep_up(ep)->am_begin(&ep->super, frame->id, in->header,
                            frame->header_len, frame->len, &in->dest);
    in->dest_at = in->dest_offset = 0;
    in->body_left = frame->len;
    tcp_body_take_buffered(in);
}

/* ---- frames ---- */

static void tcp_frame_deliver(tcp_ep_t *ep, const tcp_frame_t *frame)
{
    tcp_in_t *in = &ep->in;
    psc_am_t am = {
        .id = frame->id,
        .header_len = frame->header_len,
        .header = in->header,
        .payload = in->buffer + in->start,
        .len = (size_t)frame->len,
    };

    in->start += am.len;
    in->long_ones = false;
    (void)tcp_ep_up(ep)->am_recv(&ep->super, &am);
}

/* Takes one frame from the read buffer and delivers it. Returns false if the
 * buffer holds no complete frame. */
static bool tcp_frame_take(tcp_ep_t *ep)
{
    tcp_in_t *in = &ep->in;
    const uint8_t *bytes = in->buffer + in->start;
    size_t have = in->end - in->start, prefix;
    tcp_frame_t frame;
    const char *wrong;

    if (have < TCP_FRAME_SIZE)
        return false;
    wrong = tcp_frame_unpack(bytes, TCP_ZCOPY_MAX, &frame);
    if (wrong) {
        tcp_ep_break(ep, PSC_ERR_PROTOCOL, "%s sent %s", ep->peer, wrong);
        return false;
    }
    prefix = TCP_FRAME_SIZE + frame.header_len;
    if (have < prefix ||
        (frame.len > have - prefix && frame.len <= TCP_WHOLE_MAX))
        return false; /* the rest of the frame has not arrived yet */
    memcpy(in->header, bytes + TCP_FRAME_SIZE, frame.header_len);
    in->start += prefix;
    if (frame.kind == TCP_KIND_GOODBYE)
        in->goodbye = true;
    else if (frame.len <= have - prefix)
        tcp_frame_deliver(ep, &frame);
    else
        tcp_body_begin(ep, &frame);
    return true;
}

/* Delivers the whole frames in the read buffer. The remaining bytes, fewer than
 * a frame with TCP_WHOLE_MAX bytes of payload, are moved to the front of the
 * buffer, so that there is always room for a read. */
static void tcp_frames_take(tcp_ep_t *ep)
{
    tcp_in_t *in = &ep->in;

    while (ep->state == TCP_EP_UP && in->body_left == 0 && tcp_frame_take(ep))
        ;
    if (in->start > 0)
        memmove(in->buffer, in->buffer + in->start, in->end - in->start);
    in->end -= in->start;
    in->start = 0;
}

/* ---- reading ---- */

static ssize_t tcp_frames_read(tcp_ep_t *ep)
{
    tcp_in_t *in = &ep->in;
    bool little = in->long_ones && in->end < TCP_READ_AHEAD;
    size_t room = (little ? TCP_READ_AHEAD : TCP_READ_MAX) - in->end;
    ssize_t n = PSC_RESTART(recv(ep->rx.fd, in->buffer + in->end, room, 0));

    if (n > 0)
        in->end += (size_t)n;
    return n;
}

void tcp_stream_receive(tcp_ep_t *ep)
{
    tcp_iface_t *iface = (tcp_iface_t *)ep->super.iface;
    tcp_in_t *in = &ep->in;
    ssize_t n;

    n = in->body_left > 0 ? tcp_body_read(ep) : tcp_frames_read(ep);
    if (n <= 0) {
        tcp_stream_end(ep, n);
        return;
    }
    iface->handled++;
    if (ep->state == TCP_EP_UP)
        tcp_hot_set(iface, ep);
    tcp_frames_take(ep);
}
