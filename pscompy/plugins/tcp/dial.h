/* The connector: dials the peer's addresses in parallel. */
#pragma once

#include "tcp.h"

/* Sends the first bytes on a stream. They always fit into its buffer, so false
 * means that the stream is broken. */
bool tcp_greeting_send(int fd, const void *bytes, size_t len);
/* Reads up to `size` bytes in all. Returns 1 if they are complete, 0 if more
 * bytes are needed, and -1 if the peer has hung up. */
int tcp_greeting_read(int fd, uint8_t *bytes, size_t *have, size_t size);
void tcp_dials_begin(tcp_ep_t *ep, const uint8_t *token);
/* Called by progress: dials the next address if one has not answered in time.
 * Returns the time of the next check of this endpoint. */
int64_t tcp_dials_expire(tcp_ep_t *ep, int64_t now);
