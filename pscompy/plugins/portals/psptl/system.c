/* The driver once more, over the system's library: its types are not ours, so
 * it needs a compiled copy of its own (ni/provider.h). */
#if __has_include(<portals4.h>)

#define PSPTL_SYSTEM

#include "receive.c"
#include "backlog.c"
#include "rma.c"
#include "channel.c"
#include "device.c"
#include "event.c"
#include "deferred.c"
#include "overflow.c"
#include "psptl.c"
#include "region.c"
#include "send.c"
#include "tag.c"

#else

#include "psptl.h"

#include <stdio.h>

static bool psptl_there(char *reason, size_t room)
{
    snprintf(reason, room,
             "the build found no library of Portals 4 "
             "(PSP_PORTALS_PROVIDER=software does without)");
    return false;
}

const psptl_driver_t psptl_system_driver = {.there = psptl_there};

#endif
