/* The functions of psc_api_t that api_message.c and api_memory.c implement. */
#pragma once

#include "types/connection.h"

/* Declares psc_api_<member> with the type that api.h gives the member. */
#define PSC_API(member) __typeof__(*((psc_api_t *)0)->member) psc_api_##member

PSC_API(send);
PSC_API(send_strided);
PSC_API(offer);
PSC_API(fetch);
PSC_API(recv);
PSC_API(recv_supply);
PSC_API(recv_view);
PSC_API(probe);
PSC_API(iprobe);
PSC_API(cancel);
PSC_API(recv_give_up);
PSC_API(recv_return);
PSC_API(am_send);
PSC_API(am_handler);
PSC_API(message_poll);
PSC_API(message_free);
PSC_API(region_destroy);
PSC_API(put);
PSC_API(get);
