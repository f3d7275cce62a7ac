/* The cases of bundles.c. */
#ifndef PSCOMPY_TESTS_CORE_BUNDLES_H
#define PSCOMPY_TESTS_CORE_BUNDLES_H

void case_bundles(void);
void case_bundle_over_lanes(void);
void case_bundle_withdrawn(void);
void case_bundle_and_end(void);
void case_hostile_offers(void);

#endif
