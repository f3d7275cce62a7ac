/* Choosing a device, between the driver's own files. */
#ifndef PSCOMPY_IB_CHOOSE_H
#define PSCOMPY_IB_CHOOSE_H

#include "driver.h"

/* Where a reason goes; refuse() is always false. */
typedef struct ib_reason {
    char *text;
    size_t room;
} ib_reason_t;

bool ib_refuse(const ib_reason_t *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Open the path that the choice asks for. False: reason says why, and nothing
 * is left behind. */
bool ib_device_choose(ib_device_t *device, const ib_choice_t *choice,
                      const ib_reason_t *reason);

#endif
