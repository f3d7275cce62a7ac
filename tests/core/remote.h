/* The cases of remote.c. */
#ifndef PSCOMPY_TESTS_CORE_REMOTE_H
#define PSCOMPY_TESTS_CORE_REMOTE_H

void case_active_messages(void);
void case_posted_to_nobody(void);
void case_posted_and_ended(void);
void case_unpolled_messages(void);
void case_unpolled_and_ended(void);
void case_unpolled_and_long(void);
void case_remote_memory(void);

#endif
