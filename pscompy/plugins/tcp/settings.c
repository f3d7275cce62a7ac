/* The settings of PSP_TCP_*: converts the settings that Python has parsed into
 * tcp_settings_t, and applies them to sockets. Python has checked the ranges
 * (config.py). */
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>

#include "pscompy/transport/kit/settings.h"
#include "tcp.h"

static int tcp_setting_int(const psc_open_params_t *params, const char *name)
{
    int64_t number = psc_setting_number(params, name);

    return number < 0 ? 0 : number > INT_MAX ? INT_MAX : (int)number;
}

/* Parses the value of PSP_TCP_PORT: "0", "5000" or "5000-5100". */
static psc_status_t tcp_settings_ports(tcp_settings_t *settings,
                                       const char *text, char *reason)
{
    char *end;
    unsigned long first = strtoul(text, &end, 10), last = first;

    if (*end == '-')
        last = strtoul(end + 1, &end, 10);
    if (*end || first > last || last > UINT16_MAX) {
        snprintf(reason, PSC_REASON_MAX,
                 "PSP_TCP_PORT=%.40s is not a port or a range of ports", text);
        return PSC_ERR_INVALID;
    }
    settings->port_first = (uint16_t)first;
    settings->port_last = (uint16_t)last;
    return PSC_OK;
}

psc_status_t tcp_settings_read(const psc_open_params_t *params,
                               tcp_settings_t *settings_p)
{
    int64_t buffer_size = psc_setting_number(params, "BUFFER_SIZE");

    if (buffer_size < 1024 || buffer_size > 1 << 26) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "PSP_TCP_BUFFER_SIZE=%lld is not between 1k and 64M",
                 (long long)buffer_size);
        return PSC_ERR_INVALID;
    }
    *settings_p = (tcp_settings_t){
        .host = psc_setting_text(params, "HOST"),
        .network = psc_setting_text(params, "NETWORK"),
        .rails = psc_setting_text(params, "RAILS"),
        .bound = *psc_setting_text(params, "RAILS") != 0,
        .sndbuf = tcp_setting_int(params, "SO_SNDBUF"),
        .rcvbuf = tcp_setting_int(params, "SO_RCVBUF"),
        .nodelay = psc_setting_number(params, "NODELAY") != 0,
        .backlog = tcp_setting_int(params, "BACKLOG"),
        .accept_ns = psc_setting_number(params, "ACCEPT_TIMEOUT"),
        .connect_ns = psc_setting_number(params, "CONNECT_TIMEOUT"),
        .rail_ns = psc_setting_number(params, "RAIL_TIMEOUT"),
        .buffer_size = (size_t)buffer_size,
    };
    return tcp_settings_ports(settings_p, psc_setting_text(params, "PORT"),
                              params->reason);
}

/* ---- sockets ---- */

/* Turns on TCP keepalive, so that the sockets of a dead rail fail after about
 * 30 s. Nothing else detects a dead rail on which nothing is sent, because the
 * precon, on which a connection is negotiated, may use another rail. */
static void tcp_socket_watch(int fd)
{
    /* idle: seconds before the first probe; pause: seconds between probes */
    static const int on = 1, idle = 10, pause = 5, probes = 4;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof(pause));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

void tcp_socket_tune(const tcp_settings_t *settings, int fd)
{
    const int nodelay = settings->nodelay, unsent = TCP_UNSENT_MIN;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay));
    if (settings->sndbuf > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &settings->sndbuf,
                   sizeof(settings->sndbuf));
    if (settings->rcvbuf > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &settings->rcvbuf,
                   sizeof(settings->rcvbuf));
    if (settings->paced)
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    if (settings->bound)
        tcp_socket_watch(fd);
}

/* Selects the congestion control Reno for a socket on the loopback, where there
 * is no congestion. BBR, if it is the system's default, would pace the stream
 * by its estimates of bandwidth; Reno limits nothing until a packet is lost. */
void tcp_socket_tune_local(int fd)
{
    static const char reno[] = "reno";

    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}
