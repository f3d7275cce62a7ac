/* Blocking until requests have ended: wait and linger of psc_api_t. */
#pragma once

#include "../types/worker.h"

bool psc_wait_linger(psc_worker_t *worker, psc_request_t *request, int64_t ns);
psc_status_t psc_wait_requests(psc_worker_t *worker,
                               psc_request_t *const *requests, size_t n,
                               psc_wait_mode_t mode, int64_t timeout_ns);
