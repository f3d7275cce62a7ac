/* Descriptors to sleep on: eventfds, and epoll sets. */
#ifndef PSCOMPY_CORE_DESCRIPTOR_H
#define PSCOMPY_CORE_DESCRIPTOR_H

#include <stdint.h>

/* Make an eventfd readable, and silent again. */
void psc_descriptor_signal(int fd);
void psc_descriptor_clear(int fd);
/* Add a descriptor to an epoll set; -1 with errno. ifaces: what epoll_wait
 * tells of it, the bits of the interfaces that it belongs to. */
int psc_descriptor_watch(int set, int fd, uint32_t events, uint32_t ifaces);

#endif
