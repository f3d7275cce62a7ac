#ifndef PSCOMPY_TESTS_CORE_PARTS_H
#define PSCOMPY_TESTS_CORE_PARTS_H

void case_pool_of_requests(void);
void case_queue_of_completions(void);
void case_notices(void);
void case_flow(void);
void case_room_of_worker(void);
void case_pace(void);
void case_idle_nodes(void);

#endif
