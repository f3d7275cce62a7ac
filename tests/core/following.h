#ifndef PSCOMPY_TESTS_CORE_FOLLOWING_H
#define PSCOMPY_TESTS_CORE_FOLLOWING_H

void case_only_its_thread_is_woken(void);
void case_two_wait_for_one(void);
void case_any_of_several(void);
void case_a_follower_watches_first(void);
void case_role_is_passed_on(void);

#endif
