/* A peer that has proved the key and then breaks the protocol. */
#pragma once

#include "harness.h"

/* Send a message straight into the fabric, as the protocols of this side would:
 * over this lane, or over any lane of the connection. Returns false if the lane
 * has no room for it. */
bool hostile_speak_by(psc_lane_t *lane, unsigned id, const void *header,
                      uint8_t header_len, const void *payload, size_t len);
bool hostile_speak(psc_conn_t *conn, unsigned id, const void *header,
                   uint8_t header_len, const void *payload, size_t len);
/* Neither end waits for the other's goodbye. */
void hostile_part(pair_t *pair);
