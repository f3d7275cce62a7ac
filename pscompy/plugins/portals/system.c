/* The driver once more, over the system's library: its types are not ours, so
 * it needs a compiled copy of its own (ni/provider.h). */
#if __has_include(<portals4.h>)

#define PSPTL_SYSTEM

#include "arrive.c"
#include "backlog.c"
#include "bulk.c"
#include "channel.c"
#include "device.c"
#include "event.c"
#include "hold.c"
#include "overflow.c"
#include "psptl.c"
#include "region.c"
#include "send.c"
#include "tag.c"

#else

#include "psptl.h"

const psptl_driver_t psptl_system_driver = {.name = NULL};

#endif
