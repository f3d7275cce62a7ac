/* The cases of messages.c. */
#ifndef PSCOMPY_TESTS_CORE_MESSAGES_H
#define PSCOMPY_TESTS_CORE_MESSAGES_H

void case_sizes_auto(void);
void case_sizes_put(void);
void case_sizes_get(void);
void case_sizes_am(void);
void case_truncation(void);
void case_pieces(void);
void case_wildcards(void);
void case_probe_and_cancel(void);
void case_matched_probe(void);
void case_room(void);

#endif
