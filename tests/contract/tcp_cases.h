/* Declarations that tcp's own cases share: peers that are simulated by hand. */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "pscompy/plugins/tcp/wire.h"

/* The fields of an endpoint's address. */
typedef struct tcp_target {
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len;
    uint64_t id;
    uint16_t port;
} tcp_target_t;

/* tcp_cases.c */
void tcp_target_of(ct_end_t *end, tcp_target_t *target_p);
int tcp_dial(uint16_t port);
int tcp_dial_from(const char *source, uint16_t port);
/* Returns -1 if nobody listens there. */
int tcp_dial_at(const char *ip, uint16_t port);
int tcp_listen(uint16_t *port_p, int backlog); /* on loopback */
/* Connects to the endpoint `target`, at these ports of loopback. */
void tcp_call(ct_end_t *end, tcp_target_t target, const uint16_t *ports,
              unsigned n);
/* Connects x with y, which listens at the last of these ports. If the time
 * limit is short, a slow machine may have to dial again. */
void tcp_connect_in_the_end(ct_pair_t *pair, const uint16_t *ports, unsigned n);
void tcp_put(int fd, const void *bytes, size_t len);
/* Reads exactly len bytes while the side progresses. Returns false at the end
 * of the stream. */
bool tcp_take(ct_side_t *side, int fd, void *bytes, size_t len);
void tcp_progress_ms(ct_side_t *side, int ms);
size_t tcp_count_descriptors(void);
