/* Selecting a device; used by select_device.c and device.c only. */
#pragma once

#include "driver.h"

/* Writes the formatted text to `reason`, which has PSC_REASON_MAX bytes. Always
 * returns false, so that a caller that fails can return the result of this
 * call. */
bool ib_refuse(char *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Opens the device and port with index choice->path. Returns false if there is
 * no such port; `reason` then says why, and nothing stays open. */
bool ib_device_select(ib_device_t *device, const ib_choice_t *choice,
                      char *reason);
