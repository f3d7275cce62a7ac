/* Descriptors to sleep on: eventfds, and epoll sets. */
#pragma once

#include <stdint.h>

/* Make an eventfd readable; psc_descriptor_clear makes it unreadable again. */
void psc_descriptor_signal(int fd);
void psc_descriptor_clear(int fd);
/* Add a descriptor to an epoll set. ifaces: the bits of the interfaces that the
 * descriptor belongs to, which epoll_wait returns. Returns 0, or -1 with
 * errno. */
int psc_descriptor_watch(int set, int fd, uint32_t events, uint32_t ifaces);
