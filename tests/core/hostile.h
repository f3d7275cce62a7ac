/* A peer that has proved the key and then breaks the protocol. */
#ifndef PSCOMPY_TESTS_CORE_HOSTILE_H
#define PSCOMPY_TESTS_CORE_HOSTILE_H

void case_hostile_frames(void);
void case_hostile_flood(void);
void case_hostile_announcements(void);
void case_frames_after_the_end(void);

#endif
