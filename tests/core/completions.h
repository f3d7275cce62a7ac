/* Cases on how a consumer learns that its requests have ended. */
#ifndef PSCOMPY_TESTS_CORE_COMPLETIONS_H
#define PSCOMPY_TESTS_CORE_COMPLETIONS_H

void case_notified_once(void);
void case_handed_over_without_the_lock(void);
void case_freed_in_the_queue(void);
void case_freed_while_in_flight(void);
void case_completions_beside_the_poller(void);

#endif
