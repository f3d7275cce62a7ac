/* Writes a line to the log, prefixed by the transport's name. Header only. */
#ifndef PSCOMPY_TRANSPORT_KIT_LOG_H
#define PSCOMPY_TRANSPORT_KIT_LOG_H

#include <stdarg.h>
#include <stdio.h>

#include "pscompy/transport/transport.h"

__attribute__((format(printf, 3, 4))) static inline void
psc_iface_log(psc_iface_t *iface, int level, const char *format, ...)
{
    char line[PSC_REASON_MAX + 64];
    int n = snprintf(line, 64, "%s: ", iface->ops->name);
    va_list args;

    va_start(args, format);
    vsnprintf(line + n, sizeof(line) - (size_t)n, format, args);
    va_end(args);
    iface->up->log(iface, level, line);
}

#endif
