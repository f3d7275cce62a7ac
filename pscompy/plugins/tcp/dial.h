/* The connector: the peer's addresses, tried side by side. */
#ifndef PSCOMPY_TCP_DIAL_H
#define PSCOMPY_TCP_DIAL_H

#include "tcp.h"

/* The first bytes on a stream: there is room, or the stream is broken. */
bool tcp_greeting_send(int fd, const void *bytes, size_t len);
/* Reads up to `size` bytes in all. Returns 1 if they are complete, 0 if more
 * is to come, -1 if the peer has hung up. */
int tcp_greeting_read(int fd, uint8_t *bytes, size_t *have, size_t size);
void tcp_dials_begin(tcp_ep_t *ep, const uint8_t *token);
/* From progress: goes on to the next address where one does not answer.
 * Returns when to look at this endpoint again. */
int64_t tcp_dials_expire(tcp_ep_t *ep, int64_t now);

#endif
