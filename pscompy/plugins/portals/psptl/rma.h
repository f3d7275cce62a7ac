/* Puts and gets of regions. An order is one descriptor, which issues fragments
 * as there is room, each to its explicit offset, and ends when all of them
 * have. A fragment that meets no entry may have arrived before its entry was
 * linked, so it is tried again like a message. */
#pragma once

#include "driver.h"

/* Allocates the fragments of a device. Returns false if memory is short. */
bool psptl_bulk_open(psptl_device_t *device);
void psptl_bulk_close(psptl_device_t *device);
void psptl_bulk_event(psptl_fragment_t *fragment, const ptl_event_t *event);
/* Issues fragments, as far as there is room. */
void psptl_bulk_go_on(psptl_device_t *device);
/* Reports the orders that have ended. Returns their number. */
unsigned psptl_bulk_report(psptl_device_t *device);
/* Ends the orders of a channel that have no fragment in flight, and issues no
 * more fragments of the others. */
void psptl_bulk_abort(psptl_channel_t *channel);
