/* The table of operations, and the life of an interface. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

#define EVENTS_MAX 16

static const psc_transport_ops_t stream_ops; /* defined below */

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
    stream->listener =
        (source_t){.ready = listener_ready, .stream = stream, .fd = fd};
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
    int n = PSC_RESTART(epoll_wait(stream->epoll_fd, events, EVENTS_MAX, 0));
    psc_link_t *link;

    stream->in_progress = true;
    stream->handled = 0;
    for (int i = 0; i < n; i++) {
        source_t *source = events[i].data.ptr;

        /* skip a source that the handler of an earlier event has closed */
        if (source->fd >= 0)
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

/* The epoll set reports pending work until it is done, so nothing is left to
 * arm. */
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
