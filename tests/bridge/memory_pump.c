/* A pump in C whose fabric is this process's memory: with it a bridge joins
 * the contract's tests, and runs under sanitizers that do not see Python.
 *
 * One thread per interface, one lock for the fabric. It does what the pump in
 * Python does: takes commands, delivers frames, keeps those that are refused.
 */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/contract/harness.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/python/pump.h"

#define PORTS_MAX 512

typedef struct held {
    psc_link_t link;
    size_t len;
    uint8_t frame[];
} held_t;

/* An endpoint that has received CONNECT. */
typedef struct port {
    bridge_t *bridge; /* NULL if the entry is free */
    uint64_t ep, wants;
    int role;
    uint8_t token[PSC_TOKEN_SIZE];
    struct port *peer;
    psc_list_t held; /* frames to the peer that bridge_deliver() has refused */
    bool closing;
} port_t;

static pthread_mutex_t fabric = PTHREAD_MUTEX_INITIALIZER;
static port_t ports[PORTS_MAX];

static port_t *port_find(uint64_t ep)
{
    for (int i = 0; i < PORTS_MAX; i++) {
        if (ports[i].bridge && ports[i].ep == ep)
            return &ports[i];
    }
    return NULL;
}

static port_t *port_create(bridge_t *bridge, const bridge_command_t *command)
{
    port_t *port = ports;

    while (port->bridge)
        ct_check(++port < ports + PORTS_MAX, "too many endpoints");
    *port = (port_t){.bridge = bridge,
                     .ep = command->ep,
                     .wants = command->peer,
                     .role = command->role};
    memcpy(port->token, command->token, PSC_TOKEN_SIZE);
    psc_list_init(&port->held);
    return port;
}

static void port_free(port_t *port)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&port->held)))
        free(psc_container_of(link, held_t, link));
    if (port->peer)
        port->peer->peer = NULL;
    port->bridge = NULL;
}

static void port_fail(port_t *port, psc_status_t status, const char *reason)
{
    bridge_ep_failed(port->bridge, port->ep, status, reason);
    port_free(port);
}

/* ---- commands ---- */

static void marry(port_t *connector, port_t *acceptor)
{
    if (memcmp(connector->token, acceptor->token, PSC_TOKEN_SIZE) != 0) {
        port_fail(connector, PSC_ERR_CONNECT, "the token is wrong");
        port_fail(acceptor, PSC_ERR_CONNECT, "the token is wrong");
        return;
    }
    connector->peer = acceptor;
    acceptor->peer = connector;
    bridge_ep_up(connector->bridge, connector->ep);
    if (acceptor != connector)
        bridge_ep_up(acceptor->bridge, acceptor->ep);
}

static void on_connect(bridge_t *bridge, const bridge_command_t *command)
{
    port_t *port = port_create(bridge, command);

    if (port->role == PSC_ROLE_SELF) {
        marry(port, port);
        return;
    }
    for (int i = 0; i < PORTS_MAX; i++) {
        port_t *other = &ports[i];

        if (!other->bridge || other->peer || other == port)
            continue;
        if (port->role == PSC_ROLE_CONNECTOR &&
            other->role == PSC_ROLE_ACCEPTOR && other->ep == port->wants)
            marry(port, other);
        else if (port->role == PSC_ROLE_ACCEPTOR &&
                 other->role == PSC_ROLE_CONNECTOR && other->wants == port->ep)
            marry(other, port);
        if (!port->bridge || port->peer)
            return;
    }
}

static bool deliver(port_t *from, const uint8_t *frame, size_t len)
{
    int status = PSC_OK;

    if (from->peer)
        status = bridge_deliver(from->peer->bridge, from->peer->ep, frame, len);
    if (status == PSC_ERR_NO_RESOURCE)
        return false;
    ct_check(status == PSC_OK, "deliver: %d", status);
    bridge_frame_done(from->bridge, from->ep);
    return true;
}

static void on_frame(const bridge_command_t *command)
{
    port_t *port = port_find(command->ep);
    held_t *held;

    if (!port || (psc_list_empty(&port->held) &&
                  deliver(port, command->data, command->len)))
        return;
    held = malloc(sizeof(*held) + command->len);
    held->len = command->len;
    memcpy(held->frame, command->data, command->len);
    psc_list_push(&port->held, &held->link);
}

static void finish(port_t *port)
{
    bridge_t *bridge = port->bridge;
    uint64_t ep = port->ep;

    if (port->peer && port->peer != port)
        port_fail(port->peer, PSC_ERR_PEER_LOST, "the peer has closed");
    port_free(port);
    bridge_ep_closed(bridge, ep);
}

static void on_close(bridge_t *bridge, uint64_t ep)
{
    port_t *port = port_find(ep);

    if (!port)
        bridge_ep_closed(bridge, ep);
    else if (psc_list_empty(&port->held))
        finish(port);
    else
        port->closing = true;
}

static void on_resume(uint64_t ep)
{
    port_t *port = port_find(ep);
    port_t *from = port ? port->peer : NULL;

    while (from && !psc_list_empty(&from->held)) {
        held_t *held = psc_container_of(from->held.next, held_t, link);

        if (!deliver(from, held->frame, held->len))
            return;
        psc_list_remove(&held->link);
        free(held);
    }
    if (from && from->closing)
        finish(from);
}

static void obey(bridge_t *bridge, const bridge_command_t *command)
{
    pthread_mutex_lock(&fabric);
    switch (command->kind) {
    case BRIDGE_CONNECT:
        on_connect(bridge, command);
        break;
    case BRIDGE_FRAME:
        on_frame(command);
        break;
    case BRIDGE_RESUME:
        on_resume(command->ep);
        break;
    default:
        on_close(bridge, command->ep);
    }
    pthread_mutex_unlock(&fabric);
}

static void *pump_run(void *arg)
{
    bridge_t *bridge = arg;
    bridge_command_t command;

    for (;;) {
        struct pollfd fd = {.fd = bridge_fd(bridge), .events = POLLIN};

        ct_check(poll(&fd, 1, -1) == 1, "poll");
        while (bridge_take(bridge, &command)) {
            if (command.kind == BRIDGE_END) {
                bridge_release(bridge);
                return NULL;
            }
            obey(bridge, &command);
        }
    }
}

/* ---- the transport that the contract's tests open ---- */

#define PUMPS_MAX 8

static psc_transport_ops_t memory_ops;
static struct {
    psc_iface_t *iface; /* NULL if the entry is free */
    pthread_t thread;
} pumps[PUMPS_MAX];

static int pump_of(const psc_iface_t *iface)
{
    for (int i = 0; i < PUMPS_MAX; i++) {
        if (pumps[i].iface == iface)
            return i;
    }
    ct_check(false, "too many interfaces");
}

static psc_status_t memory_open(const psc_open_params_t *params,
                                psc_iface_t **iface_p)
{
    bridge_attr_t attr = {
        .latency_ns = 1e4, .bandwidth = 1e9, .max_frame = 8192, .queue = 4};
    bridge_t *bridge = bridge_create("bridge", &attr, NULL, 0);
    psc_setting_t setting = {.name = "bridge", .text = ""};
    psc_open_params_t own = *params;
    psc_status_t status;
    int pump = pump_of(NULL);

    ct_check(bridge, "bridge_create");
    setting.number = (int64_t)(uintptr_t)bridge;
    own.settings = &setting;
    own.n_settings = 1;
    status = ((psc_transport_ops_t *)bridge_ops(bridge))->open(&own, iface_p);
    (*iface_p)->ops = &memory_ops; /* as if all bridges shared one table */
    pumps[pump].iface = *iface_p;
    ct_check(!pthread_create(&pumps[pump].thread, NULL, pump_run, bridge),
             "thread");
    return status;
}

static void (*bridge_fini)(psc_iface_t *iface);
static unsigned (*bridge_progress)(psc_iface_t *iface);

/* Some cases count passes; let the pump run in each. */
static unsigned memory_progress(psc_iface_t *iface)
{
    unsigned n = bridge_progress(iface);

    if (n == 0)
        usleep(10);
    return n;
}

static void memory_fini(psc_iface_t *iface)
{
    int pump = pump_of(iface);

    pthread_join(pumps[pump].thread, NULL);
    pumps[pump].iface = NULL;
    bridge_fini(iface);
}

uintptr_t bridge_transport(void);

uintptr_t bridge_transport(void)
{
    bridge_attr_t attr = {
        .latency_ns = 1, .bandwidth = 1, .max_frame = 8192, .queue = 1};
    bridge_t *bridge = bridge_create("bridge", &attr, NULL, 0);

    ct_check(bridge, "bridge_create");
    memory_ops = *(psc_transport_ops_t *)bridge_ops(bridge);
    bridge_release(bridge);
    memory_ops.name = "bridge";
    memory_ops.open = memory_open;
    bridge_progress = memory_ops.progress;
    memory_ops.progress = memory_progress;
    bridge_fini = memory_ops.fini;
    memory_ops.fini = memory_fini;
    return (uintptr_t)&memory_ops;
}

/* ---- cases of its own ---- */

static void refuse(const uint8_t *frame, size_t len)
{
    bridge_attr_t attr = {
        .latency_ns = 1, .bandwidth = 1, .max_frame = 4096, .queue = 2};
    bridge_t *bridge = bridge_create("bridge", &attr, NULL, 0);
    int status = bridge_deliver(bridge, 1, frame, len);

    ct_check(status == PSC_ERR_PROTOCOL, "%zu bytes: %d", len, status);
    bridge_release(bridge);
}

CASE(absurd_frames_are_refused)
{
    static uint8_t frame[5000];

    for (size_t len = 0; len < 8; len++)
        refuse(frame, len);
    refuse(frame, 4097);
    frame[1] = PSC_AM_HEADER_MAX + 1;
    refuse(frame, 4096);
    frame[1] = 10;
    refuse(frame, 8 + 9);
}

CASE(what_does_not_fit_is_not_made)
{
    bridge_attr_t attr = {
        .latency_ns = 1, .bandwidth = 1, .max_frame = 4096, .queue = 2};
    static uint8_t address[PSC_ADDRESS_MAX];

    ct_check(!bridge_create("a-name-that-is-too-long", &attr, NULL, 0), "name");
    ct_check(!bridge_create("b", &attr, address, sizeof(address)), "address");
    attr.max_frame = 1000;
    ct_check(!bridge_create("b", &attr, NULL, 0), "max_frame");
}
