/* The settings of PSP_TCP_*, and how they are applied to sockets. */
#pragma once

#include "tcp.h"

psc_status_t tcp_settings_read(const psc_open_params_t *params,
                               tcp_settings_t *settings_p);

void tcp_socket_tune(const tcp_settings_t *settings, int fd);
/* For a socket whose peer is on this host. */
void tcp_socket_tune_local(int fd);
