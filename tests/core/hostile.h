/* A peer that has proved the key and then breaks the protocol. */
#ifndef PSCOMPY_TESTS_CORE_HOSTILE_H
#define PSCOMPY_TESTS_CORE_HOSTILE_H

#include "harness.h"

/* Straight into the fabric, as the protocols of this side would. False: the
 * lane has no room for it. */
bool hostile_speak(psc_conn_t *conn, unsigned id, const void *header,
                   uint8_t header_len, const void *payload, size_t len);
/* Neither end waits for the other's goodbye. */
void hostile_part(pair_t *pair);

void case_hostile_frames(void);
void case_hostile_flood(void);
void case_hostile_announcements(void);
void case_hostile_promises(void);
void case_frames_after_the_end(void);

#endif
