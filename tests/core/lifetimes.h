/* The cases of lifetimes.c. */
#ifndef PSCOMPY_TESTS_CORE_LIFETIMES_H
#define PSCOMPY_TESTS_CORE_LIFETIMES_H

void case_destroyed_connections_are_freed(void);
void case_destroy_with_unreceived_messages(void);
void case_destroy_with_messages_in_hand(void);
void case_wake(void);
void case_refused_interface_stops(void);

#endif
