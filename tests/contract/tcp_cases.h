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
void tcp_set(const char *name, int64_t number, const char *text);
void tcp_target_of(ct_end_t *end, tcp_target_t *target_p);
/* Connects `end` as the acceptor of a call from `caller`. */
void tcp_await_call(ct_end_t *end, ct_end_t *caller);
int tcp_dial(uint16_t port);
int tcp_dial_from(const char *source, uint16_t port);
/* Returns -1 if nobody listens there. */
int tcp_dial_at(const char *ip, uint16_t port);
/* tcp_listen opens a listener on loopback; tcp_address_with makes an address
 * that offers these ports there. */
int tcp_listen(uint16_t *port_p, int backlog);
size_t tcp_address_with(uint64_t id, const uint16_t *ports, unsigned n,
                        uint8_t *address);
void tcp_put(int fd, const void *bytes, size_t len);
/* Reads exactly len bytes while the side progresses. Returns false at the end
 * of the stream. */
bool tcp_take(ct_side_t *side, int fd, void *bytes, size_t len);
void tcp_progress_ms(ct_side_t *side, int ms);
size_t tcp_count_descriptors(void);
