/* Buffers of the receive ring, as entries of the interface. */
#ifndef PSCOMPY_PORTALS_RECEIVE_H
#define PSCOMPY_PORTALS_RECEIVE_H

#include "driver.h"

/* Returns false if the interface does not take the entry. */
bool psptl_buffer_post(psptl_buffer_t *buffer);
/* Unlinks the entry of the buffer, between two fetches of the backlog. */
void psptl_buffer_unlink(psptl_buffer_t *buffer);
/* After the second fetch: returns true if the buffer is not the interface's
 * any more. */
bool psptl_buffer_back(psptl_buffer_t *buffer);

#endif
