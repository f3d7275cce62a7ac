/* Selecting a device; shared by select_device.c and device.c only. */
#ifndef PSCOMPY_IB_CHOOSE_H
#define PSCOMPY_IB_CHOOSE_H

#include "driver.h"

/* Buffer for the reason of a failure. ib_refuse() always returns false. */
typedef struct ib_reason {
    char *text;
    size_t room;
} ib_reason_t;

bool ib_refuse(const ib_reason_t *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Opens the path that the choice asks for. Returns false if there is none;
 * `reason` says why, and nothing stays open. */
bool ib_device_choose(ib_device_t *device, const ib_choice_t *choice,
                      const ib_reason_t *reason);

#endif
