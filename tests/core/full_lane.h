#ifndef PSCOMPY_TESTS_CORE_FULL_LANE_H
#define PSCOMPY_TESTS_CORE_FULL_LANE_H

void case_one_stop_per_full_lane(void);
void case_credit_of_a_refused_header(void);

#endif
